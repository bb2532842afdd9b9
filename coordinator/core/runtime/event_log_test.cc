#include "coordinator/core/runtime/event_log.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Log = EventLog<std::string>;

Log WithEvents(int64_t max_events) {
  Log log(10);
  log.Append(12, "a", max_events);
  log.Append(15, "b", max_events);
  log.Append(16, "c", max_events);
  return log;
}

TEST(EventLog, HasNothingToReadWhenNew) {
  const Log log(10);
  EXPECT_EQ(log.Read(10, 5).outcome, Log::Outcome::kNone);
  EXPECT_EQ(log.Read(10, 5).revision, 10);
}

TEST(EventLog, ReadsInOrderFromBetweenRevisions) {
  const Log log = WithEvents(10);
  const Log::Batch batch = log.Read(13, 5);
  EXPECT_EQ(batch.outcome, Log::Outcome::kEvents);
  EXPECT_THAT(batch.events, ElementsAre("b", "c"));
  EXPECT_EQ(batch.revision, 16);
}

TEST(EventLog, ContinuesFromTheRevisionOfTheLastBatch) {
  const Log log = WithEvents(10);
  const Log::Batch first = log.Read(10, 2);
  EXPECT_THAT(first.events, ElementsAre("a", "b"));
  const Log::Batch second = log.Read(first.revision, 2);
  EXPECT_THAT(second.events, ElementsAre("c"));
  EXPECT_EQ(log.Read(second.revision, 2).outcome, Log::Outcome::kNone);
}

TEST(EventLog, ReadsOnWhenTheReaderSawAllThatWasDropped) {
  const Log log = WithEvents(2);
  EXPECT_EQ(log.before_oldest(), 12);
  EXPECT_THAT(log.Read(12, 5).events, ElementsAre("b", "c"));
}

TEST(EventLog, SaysCompactedWhenTheReaderMissedADroppedEvent) {
  const Log log = WithEvents(2);
  EXPECT_EQ(log.Read(11, 5).outcome, Log::Outcome::kCompacted);
  EXPECT_THAT(log.Read(11, 5).events, IsEmpty());
}

TEST(EventLog, SaysCompactedBeforeItsFirstRevision) {
  EXPECT_EQ(WithEvents(10).Read(9, 5).outcome, Log::Outcome::kCompacted);
}

TEST(EventLog, SaysCompactedForARevisionOfAnotherBoot) {
  EXPECT_EQ(WithEvents(10).Read(17, 5).outcome, Log::Outcome::kCompacted);
}

TEST(EventLog, StillKnowsTheNewestWhenAllWasDropped) {
  Log log = WithEvents(10);
  while (!log.empty()) log.DropOldest();
  EXPECT_EQ(log.newest(), 16);
  EXPECT_EQ(log.Read(16, 5).outcome, Log::Outcome::kNone);
  EXPECT_EQ(log.Read(15, 5).outcome, Log::Outcome::kCompacted);
}

TEST(EventLog, KeepsOneEventWhateverTheLimit) { EXPECT_EQ(WithEvents(0).size(), 1u); }

}  // namespace
}  // namespace cohort::coordinator
