#include "worker/communicator/nccl/nccl_board.h"

#include <unistd.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

// `counts`: of the operations, one after the other.
void PostAll(const NcclBoard& board, int rank, std::initializer_list<int64_t> counts) {
  uint64_t chain = 0;
  for (const int64_t count : counts) {
    FlatCall operation;
    operation.collective = Collective::kAllGather;
    operation.count = count;
    const OperationLine line = LineOf(operation);
    chain = Chained(chain, line);
    board.Post(rank, {line, chain});
  }
}

TEST(NcclBoardTest, WhatOnePostsAnotherReads) {
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(2);
  ASSERT_TRUE(board.ok()) << board.status();
  const absl::StatusOr<NcclBoard> other = NcclBoard::Attach(dup(board->fd()), 2);
  ASSERT_TRUE(other.ok()) << other.status();
  PostAll(*board, 1, {7, 8});
  EXPECT_EQ(other->posted(0), 0);
  EXPECT_EQ(other->posted(1), 2);
  EXPECT_FALSE(other->Read(1, 0).has_value());
  ASSERT_TRUE(other->Read(1, 2).has_value());
  EXPECT_EQ(Describe(other->Read(1, 2)->line), "all_gather of 8 u8");
  EXPECT_FALSE(other->Read(1, 3).has_value());
  board->Advance(1, {2, 1});
  board->Advance(1, {1, 0});
  EXPECT_EQ(other->progress(1).started, 2);
  EXPECT_EQ(other->progress(1).finished, 1);
}

TEST(NcclBoardTest, OnlyTheLastAreKept) {
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(1);
  for (int64_t i = 1; i <= NcclBoard::kEntries + 1; ++i) PostAll(*board, 0, {i});
  EXPECT_FALSE(board->Read(0, 1).has_value());
  EXPECT_EQ(board->Read(0, 2)->line.key.count, 2);
  EXPECT_EQ(board->Read(0, NcclBoard::kEntries + 1)->line.key.count, NcclBoard::kEntries + 1);
}

TEST(NcclBoardTest, TheFirstDifferenceIsFoundHoweverFarTheRanksAre) {
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(3);
  PostAll(*board, 0, {1, 2, 3, 4, 5});
  PostAll(*board, 1, {1, 2});
  EXPECT_FALSE(board->FindDifference(0).has_value());
  PostAll(*board, 2, {1, 9, 3});
  const auto found = board->FindDifference(0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->sequence, 2);
  EXPECT_TRUE(found->is_first);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->mine.key.count, 2);
  EXPECT_EQ(found->theirs.key.count, 9);
  EXPECT_EQ(board->FindDifference(2)->rank, 0);
}

// What differs is told by all that follows, even if it is gone itself.
TEST(NcclBoardTest, ADifferenceThatIsGoneIsStillFound) {
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(2);
  uint64_t chains[] = {1, 2};
  for (int64_t i = 0; i < NcclBoard::kEntries + 10; ++i) {
    for (const int rank : {0, 1}) {
      OperationLine line;
      line.key.count = i;
      chains[rank] = Chained(chains[rank], line);
      board->Post(rank, {line, chains[rank]});
    }
  }
  const auto found = board->FindDifference(1);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->is_first);
}

TEST(NcclBoardTest, TheFirstVerdictStays) {
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(1);
  EXPECT_EQ(board->verdict(), absl::OkStatus());
  board->Condemn(absl::InvalidArgumentError("the first"));
  board->Condemn(absl::AbortedError("the second"));
  EXPECT_EQ(board->verdict(), absl::InvalidArgumentError("the first"));
}

TEST(NcclBoardTest, WhoReadsWhileOneWritesGetsAllOrNothing) {
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(1);
  std::atomic<bool> done{false};
  std::thread reads([&] {
    while (!done) {
      const int64_t last = board->posted(0);
      for (const int64_t sequence : {last, last - NcclBoard::kEntries + 1}) {
        const auto entry = board->Read(0, sequence);
        if (!entry.has_value()) continue;
        ASSERT_EQ(entry->line.key.count, sequence);
        ASSERT_EQ(entry->chain, static_cast<uint64_t>(sequence));
      }
    }
  });
  for (int64_t i = 1; i <= 20 * NcclBoard::kEntries; ++i) {
    OperationLine line;
    line.key.count = i;
    board->Post(0, {line, static_cast<uint64_t>(i)});
  }
  done = true;
  reads.join();
}

TEST(NcclBoardTest, WhatIsNoBoardIsRefused) {
  EXPECT_EQ(NcclBoard::Create(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NcclBoard::Create(NcclBoard::kMaxRanks + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(2);
  EXPECT_EQ(NcclBoard::Attach(dup(board->fd()), 3).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(NcclBoardTest, MemoryOfZerosBecomesOneForAllWhoMapIt) {
  absl::StatusOr<shm::Segment> zeros = shm::Segment::Create("test", NcclBoard::Bytes(2));
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  absl::StatusOr<shm::Segment> mapped = shm::Segment::Map(dup(zeros->fd()), NcclBoard::Bytes(2));
  const absl::StatusOr<NcclBoard> one = NcclBoard::Over(*std::move(zeros), 2);
  ASSERT_TRUE(one.ok()) << one.status();
  PostAll(*one, 0, {1, 2});
  const absl::StatusOr<NcclBoard> two = NcclBoard::Over(*std::move(mapped), 2);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->posted(0), 2);
  EXPECT_TRUE(NcclBoard::Attach(dup(two->fd()), 2).ok());
}

TEST(NcclBoardTest, WhatIsNeitherZerosNorABoardIsRefused) {
  absl::StatusOr<shm::Segment> strange = shm::Segment::Create("test", NcclBoard::Bytes(2));
  strange->data()[0] = 'x';
  EXPECT_EQ(NcclBoard::Over(*std::move(strange), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NcclBoard::Over(*shm::Segment::Create("test", 64), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::worker
