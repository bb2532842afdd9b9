#include "coordinator/journal/memory_journal.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

TEST(MemoryJournal, EveryOpenIsTheFirst) {
  for (int start = 0; start < 2; ++start) {
    MemoryJournal journal;
    const absl::StatusOr<JournalContents> contents = journal.Open();
    ASSERT_TRUE(contents.ok());
    EXPECT_EQ(contents->boot, 1);
    EXPECT_THAT(contents->rows, testing::IsEmpty());
    EXPECT_TRUE(
        journal.Append({Record{{"tenant", "group"}, RecordKind::kGroup, "", GroupRecord()}}).ok());
  }
}

TEST(MemoryJournal, SaysThatItKeepsNothing) {
  EXPECT_TRUE(MemoryJournal().keeps_nothing());
  EXPECT_STREQ(MemoryJournal().name(), "memory");
}

}  // namespace
}  // namespace cohort::coordinator
