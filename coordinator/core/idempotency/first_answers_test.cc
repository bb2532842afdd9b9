#include "coordinator/core/idempotency/first_answers.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/interface/effects.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

const GroupKey kKey{"tenant", "group"};

class FirstAnswersTest : public ::testing::Test {
 protected:
  static Id128 Id(uint64_t n) { return Id128{1, n}; }

  // Returns the records that came of it.
  std::vector<Record> Remember(const Id128& id, ReplyBody answer, uint64_t fingerprint = 0) {
    Effects effects;
    Step step(now_, effects);
    window_.Remember(step, kKey, id, fingerprint, std::move(answer), limits_);
    return std::move(effects.records);
  }

  // The answers of a window after a restart, which has only the record.
  template <typename R>
  R ThroughRecord(const R& answer) {
    const std::vector<Record> records = Remember(Id(++last_), answer);
    EXPECT_EQ(records.size(), 1u);
    FirstAnswers next;
    next.Restore(std::get<OperationRecord>(*records.at(0).value), now_);
    const ReplyBody* found = next.Find(Id(last_));
    EXPECT_TRUE(found != nullptr && std::holds_alternative<R>(*found));
    return found == nullptr ? R{} : std::get<R>(*found);
  }

  Instant now_ = absl::UnixEpoch();
  Limits limits_;
  FirstAnswers window_;
  uint64_t last_ = 0;
};

TEST_F(FirstAnswersTest, FindsTheFirstAnswer) {
  Remember(Id(1), AddReply{5, 6});
  Remember(Id(1), AddReply{7, 8});
  const ReplyBody* found = window_.Find(Id(1));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(std::get<AddReply>(*found).value, 5);
  EXPECT_EQ(window_.Find(Id(2)), nullptr);
}

TEST_F(FirstAnswersTest, KeepsNothingForAnEmptyId) {
  EXPECT_TRUE(Remember(Id128{}, AddReply{5, 6}).empty());
  EXPECT_EQ(window_.Find(Id128{}), nullptr);
}

TEST_F(FirstAnswersTest, KeepsNoAnswerThatHasValues) {
  EXPECT_TRUE(Remember(Id(1), GetReply{}).empty());
  EXPECT_TRUE(Remember(Id(2), ReceiveReply{}).empty());
  EXPECT_EQ(window_.size(), 0u);
}

TEST_F(FirstAnswersTest, BringsSmallAnswersThroughARestart) {
  EXPECT_EQ(ThroughRecord(SendReply{3, true}).sequence, 3);
  EXPECT_TRUE(ThroughRecord(SendReply{3, true}).consumed);
  EXPECT_TRUE(ThroughRecord(PutReply{true, 9}).written);
  EXPECT_EQ(ThroughRecord(PutReply{true, 9}).revision, 9);
  EXPECT_EQ(ThroughRecord(DeleteReply{2, 9}).deleted_count, 2);
  EXPECT_EQ(ThroughRecord(AddReply{-4, 9}).value, -4);
  EXPECT_EQ(ThroughRecord(AppendReply{12, 9}).size_bytes, 12);
  EXPECT_EQ(ThroughRecord(QueuePushReply{4, 5}).depth, 5);
  EXPECT_EQ(ThroughRecord(ExpireReply{6, 7}).size_bytes, 7);
  EXPECT_EQ(ThroughRecord(CreateGroupReply{8}).generation, 8);
  EXPECT_EQ(ThroughRecord(CancelRoundReply{11}).number, 11);
  EXPECT_EQ(ThroughRecord(PutBlobReply{13}).blob, 13);
  ThroughRecord(EmptyReply{});
}

TEST_F(FirstAnswersTest, BringsACommittedViewThroughARestart) {
  ViewReply view;
  view.generation = 4;
  view.rank = 2;
  view.world_size = 7;
  const ViewReply restored = ThroughRecord(view);
  EXPECT_EQ(restored.generation, 4);
  EXPECT_EQ(restored.rank, 2);
  EXPECT_EQ(restored.world_size, 7);
  view.rank = -1;
  EXPECT_EQ(ThroughRecord(view).rank, -1);
}

TEST_F(FirstAnswersTest, KeepsAWholeViewWhileItLives) {
  ViewReply view;
  view.revision = 77;
  Remember(Id(1), view);
  EXPECT_EQ(std::get<ViewReply>(*window_.Find(Id(1))).revision, 77);
}

TEST_F(FirstAnswersTest, DoesNotKeepARefusedView) {
  ViewReply view;
  view.outcome = ViewReply::Outcome::kRefused;
  EXPECT_TRUE(Remember(Id(1), view).empty());
  EXPECT_EQ(window_.Find(Id(1)), nullptr);
}

TEST_F(FirstAnswersTest, KeepsARefusedPutWithoutARecord) {
  EXPECT_TRUE(Remember(Id(1), PutReply{false, 9}).empty());
  ASSERT_NE(window_.Find(Id(1)), nullptr);
  EXPECT_FALSE(std::get<PutReply>(*window_.Find(Id(1))).written);
}

TEST_F(FirstAnswersTest, EvictsTheOldestAboveTheLimit) {
  limits_.max_operations_kept = 2;
  Remember(Id(1), AddReply{1, 1});
  Remember(Id(2), AddReply{2, 2});
  const std::vector<Record> records = Remember(Id(3), AddReply{3, 3});
  EXPECT_EQ(window_.Find(Id(1)), nullptr);
  EXPECT_NE(window_.Find(Id(2)), nullptr);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records[0].value.has_value());
  EXPECT_FALSE(records[1].value.has_value());
  EXPECT_EQ(records[1].id, Id(1).ToString());
}

// In a group whose other clients are busy: what one has in flight is not pushed out by them.
TEST_F(FirstAnswersTest, EvictsOfTheClientThatHasMost) {
  limits_.max_operations_kept = 10;
  Remember(Id128{7, 1}, AddReply{1, 1});
  Remember(Id128{7, 2}, AddReply{2, 2});
  for (uint64_t n = 1; n <= 1000; ++n) Remember(Id128{8, n}, AddReply{3, 3});
  EXPECT_NE(window_.Find(Id128{7, 1}), nullptr);
  EXPECT_NE(window_.Find(Id128{7, 2}), nullptr);
  EXPECT_EQ(window_.Find(Id128{8, 992}), nullptr);
  EXPECT_NE(window_.Find(Id128{8, 993}), nullptr);
  EXPECT_EQ(window_.size(), 10u);
  // If every id has a first half of its own, each counts as a client: the oldest answer is dropped.
  for (uint64_t n = 100; n < 120; ++n) Remember(Id128{n, n}, AddReply{4, 4});
  EXPECT_EQ(window_.size(), 10u);
  EXPECT_NE(window_.Find(Id128{119, 119}), nullptr);
  EXPECT_NE(window_.Find(Id128{112, 112}), nullptr);
  EXPECT_EQ(window_.Find(Id128{105, 105}), nullptr);
}

// Rows come back in the order of their keys, which says nothing about time.
TEST_F(FirstAnswersTest, TheOldestIsTheOldestAfterARestartToo) {
  limits_.max_operations_kept = 4;
  std::vector<OperationRecord> rows;
  for (const uint64_t n : {4, 3, 2, 1}) {
    const std::vector<Record> records = Remember(Id(n), AddReply{1, 1});
    rows.push_back(std::get<OperationRecord>(*records.at(0).value));
  }
  FirstAnswers next;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) next.Restore(*row, now_);
  Effects effects;
  Step step(now_, effects);
  next.Remember(step, kKey, Id(5), 0, AddReply{1, 1}, limits_);
  EXPECT_EQ(next.Find(Id(4)), nullptr);
  for (const uint64_t n : {3, 2, 1, 5}) EXPECT_NE(next.Find(Id(n)), nullptr) << n;
}

TEST_F(FirstAnswersTest, NewAnswersAreTheNewestAfterARestartToo) {
  limits_.max_operations_kept = 4;
  for (uint64_t n = 10; n < 20; ++n) Remember(Id(n), AddReply{1, 1});  // dropped before the restart
  std::vector<OperationRecord> rows;
  for (const uint64_t n : {4, 3, 2, 1}) {
    const std::vector<Record> records = Remember(Id(n), AddReply{1, 1});
    rows.push_back(std::get<OperationRecord>(*records.at(0).value));
  }
  FirstAnswers next;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) next.Restore(*row, now_);
  Effects effects;
  Step step(now_, effects);
  for (const uint64_t n : {5, 6, 7}) next.Remember(step, kKey, Id(n), 0, AddReply{1, 1}, limits_);
  for (const uint64_t n : {4, 3, 2}) EXPECT_EQ(next.Find(Id(n)), nullptr) << n;
  for (const uint64_t n : {1, 5, 6, 7}) EXPECT_NE(next.Find(Id(n)), nullptr) << n;
}

TEST_F(FirstAnswersTest, DropsWhatIsOlderThanTenMinutesWhenItRemembers) {
  Remember(Id(1), AddReply{1, 1});
  now_ += absl::Minutes(10);
  Remember(Id(2), AddReply{2, 2});
  EXPECT_NE(window_.Find(Id(1)), nullptr);
  now_ += absl::Nanoseconds(1);
  Remember(Id128{}, AddReply{3, 3});
  EXPECT_EQ(window_.Find(Id(1)), nullptr);
  EXPECT_NE(window_.Find(Id(2)), nullptr);
}

TEST_F(FirstAnswersTest, ForgetsAnAnswerAndItsRecord) {
  Remember(Id(1), AddReply{1, 1});
  Effects effects;
  Step step(now_, effects);
  window_.Forget(step, kKey, Id(1));
  window_.Forget(step, kKey, Id(2));
  EXPECT_EQ(window_.Find(Id(1)), nullptr);
  EXPECT_EQ(effects.records.size(), 1u);
}

TEST_F(FirstAnswersTest, RefusesAnotherRequestAlsoFromARecord) {
  const AddCall one{"n", 1}, two{"n", 2};
  const std::vector<Record> records = Remember(Id(1), AddReply{5, 6}, Fingerprint(one));
  FirstAnswers next;
  next.Restore(std::get<OperationRecord>(*records.at(0).value), now_);
  for (const FirstAnswers* window : {&window_, &next}) {
    EXPECT_TRUE(window->CheckSame<AddReply>(Id(1), Fingerprint(one), one).ok());
    EXPECT_TRUE(window->CheckSame<AddReply>(Id(2), Fingerprint(two), two).ok());
    const absl::Status status = window->CheckSame<AddReply>(Id(1), Fingerprint(two), two);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "scope.operation_id " + Id(1).ToString() +
                  " was used before, for an add (its value: 5); it comes again with "
                  "another request: add of 2 to key \"n\"");
  }
}

// A journal of an older version says nothing of the request: only the method can be compared.
TEST_F(FirstAnswersTest, TakesARecordWithoutAFingerprintAtItsWord) {
  const std::vector<Record> records = Remember(Id(1), AddReply{5, 6});
  FirstAnswers next;
  next.Restore(std::get<OperationRecord>(*records.at(0).value), now_);
  const AddCall call{"n", 1};
  EXPECT_TRUE(next.CheckSame<AddReply>(Id(1), Fingerprint(call), call).ok());
  EXPECT_FALSE(next.CheckSame<PutReply>(Id(1), Fingerprint(call), call).ok());
}

TEST_F(FirstAnswersTest, SkipsRowsItCannotRead) {
  OperationRecord record;
  record.id = Id(1);
  record.reply_kind = 1000;
  window_.Restore(record, now_);
  EXPECT_EQ(window_.Find(Id(1)), nullptr);
}

}  // namespace
}  // namespace cohort::coordinator
