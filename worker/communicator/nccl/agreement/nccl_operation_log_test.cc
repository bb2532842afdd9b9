#include "worker/communicator/nccl/agreement/nccl_operation_log.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

// `counts`: of the operations, one after the other.
void PostAll(const NcclOperationLog& operation_log, int rank,
             std::initializer_list<int64_t> counts) {
  uint64_t chain = 0;
  for (const int64_t count : counts) {
    FlatCall operation;
    operation.collective = Collective::kAllGather;
    operation.count = count;
    const OperationLogLine line = LineOf(operation);
    chain = Chained(chain, line);
    operation_log.Post(rank, {line, chain});
  }
}

TEST(NcclOperationLogTest, AnEntryThatOneRankPostsIsReadByAnother) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(2);
  ASSERT_TRUE(operation_log.ok()) << operation_log.status();
  const absl::StatusOr<NcclOperationLog> other =
      NcclOperationLog::Attach(dup(operation_log->fd()), 2);
  ASSERT_TRUE(other.ok()) << other.status();
  PostAll(*operation_log, 1, {7, 8});
  EXPECT_EQ(other->posted(0), 0);
  EXPECT_EQ(other->posted(1), 2);
  EXPECT_FALSE(other->Read(1, 0).has_value());
  ASSERT_TRUE(other->Read(1, 2).has_value());
  EXPECT_EQ(Describe(other->Read(1, 2)->line), "all_gather of 8 u8");
  EXPECT_FALSE(other->Read(1, 3).has_value());
  operation_log->Advance(1, {2, 1});
  operation_log->Advance(1, {1, 0});
  EXPECT_EQ(other->progress(1).started, 2);
  EXPECT_EQ(other->progress(1).finished, 1);
}

TEST(NcclOperationLogTest, OnlyTheLastAreKept) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(1);
  for (int64_t i = 1; i <= NcclOperationLog::kEntries + 1; ++i) PostAll(*operation_log, 0, {i});
  EXPECT_FALSE(operation_log->Read(0, 1).has_value());
  EXPECT_EQ(operation_log->Read(0, 2)->line.key.count, 2);
  EXPECT_EQ(operation_log->Read(0, NcclOperationLog::kEntries + 1)->line.key.count,
            NcclOperationLog::kEntries + 1);
}

TEST(NcclOperationLogTest, TheFirstDifferenceIsFoundHoweverFarTheRanksAre) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(3);
  PostAll(*operation_log, 0, {1, 2, 3, 4, 5});
  PostAll(*operation_log, 1, {1, 2});
  EXPECT_FALSE(operation_log->FindDifference(0).has_value());
  PostAll(*operation_log, 2, {1, 9, 3});
  const auto found = operation_log->FindDifference(0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->sequence, 2);
  EXPECT_TRUE(found->is_first);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->mine.key.count, 2);
  EXPECT_EQ(found->theirs.key.count, 9);
  EXPECT_EQ(operation_log->FindDifference(2)->rank, 0);
}

// A difference shows in all later entries, even if the entry itself is gone.
TEST(NcclOperationLogTest, ADifferenceThatIsGoneIsStillFound) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(2);
  uint64_t chains[] = {1, 2};
  for (int64_t i = 0; i < NcclOperationLog::kEntries + 10; ++i) {
    for (const int rank : {0, 1}) {
      OperationLogLine line;
      line.key.count = i;
      chains[rank] = Chained(chains[rank], line);
      operation_log->Post(rank, {line, chains[rank]});
    }
  }
  const auto found = operation_log->FindDifference(1);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->is_first);
}

TEST(NcclOperationLogTest, TheFirstErrorStays) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(1);
  EXPECT_EQ(operation_log->error(), absl::OkStatus());
  operation_log->Fail(absl::InvalidArgumentError("the first"));
  operation_log->Fail(absl::AbortedError("the second"));
  EXPECT_EQ(operation_log->error(), absl::InvalidArgumentError("the first"));
}

TEST(NcclOperationLogTest, AReaderDuringAWriteGetsAllOrNothing) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(1);
  std::atomic<bool> done{false};
  std::thread reads([&] {
    while (!done) {
      const int64_t last = operation_log->posted(0);
      for (const int64_t sequence : {last, last - NcclOperationLog::kEntries + 1}) {
        const auto entry = operation_log->Read(0, sequence);
        if (!entry.has_value()) continue;
        ASSERT_EQ(entry->line.key.count, sequence);
        ASSERT_EQ(entry->chain, static_cast<uint64_t>(sequence));
      }
    }
  });
  for (int64_t i = 1; i <= 20 * NcclOperationLog::kEntries; ++i) {
    OperationLogLine line;
    line.key.count = i;
    operation_log->Post(0, {line, static_cast<uint64_t>(i)});
  }
  done = true;
  reads.join();
}

TEST(NcclOperationLogTest, AnInvalidSizeIsRefused) {
  EXPECT_EQ(NcclOperationLog::Create(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NcclOperationLog::Create(NcclOperationLog::kMaxRanks + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(2);
  EXPECT_EQ(NcclOperationLog::Attach(dup(operation_log->fd()), 3).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(NcclOperationLogTest, ZeroedMemoryBecomesALogForAllRanksThatMapIt) {
  absl::StatusOr<shm::Segment> zeros = shm::Segment::Create("test", NcclOperationLog::Bytes(2));
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  absl::StatusOr<shm::Segment> mapped =
      shm::Segment::Map(dup(zeros->fd()), NcclOperationLog::Bytes(2));
  const absl::StatusOr<NcclOperationLog> one = NcclOperationLog::Over(*std::move(zeros), 2);
  ASSERT_TRUE(one.ok()) << one.status();
  PostAll(*one, 0, {1, 2});
  const absl::StatusOr<NcclOperationLog> two = NcclOperationLog::Over(*std::move(mapped), 2);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->posted(0), 2);
  EXPECT_TRUE(NcclOperationLog::Attach(dup(two->fd()), 2).ok());
}

TEST(NcclOperationLogTest, MemoryThatIsNeitherZerosNorAnOperationLogIsRefused) {
  absl::StatusOr<shm::Segment> strange = shm::Segment::Create("test", NcclOperationLog::Bytes(2));
  strange->data()[0] = 'x';
  EXPECT_EQ(NcclOperationLog::Over(*std::move(strange), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NcclOperationLog::Over(*shm::Segment::Create("test", 64), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::worker
