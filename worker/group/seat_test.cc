// Seats at a real coordinator, in one process.
#include "worker/group/seat.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/shm/heap.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr absl::Duration kLong = absl::Seconds(60);

class SeatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([this, rank] { Meet(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void Meet(int rank) {
    SeatOptions options;
    options.membership.connection.address = coordinator_.address();
    options.membership.group = "seats";
    options.membership.rank = rank;
    options.membership.world_size = kRanks;
    if (rank == 0) {
      options.membership.on_event = [this](const client::GroupEvent& event) {
        MutexLock lock(&mutex_);
        has_left_ = has_left_ || event.kind == client::EventKind::kLeft;
        first_broke_ = first_broke_ ||
                       (event.kind == client::EventKind::kBroken && event.generation == 1);
        if (event.kind != client::EventKind::kErrorReported) return;
        // Later events are delayed.
        holds_events_ = true;
        mutex_.Await(absl::Condition(&let_go_));
      };
    }
    auto heap = shm::Heap::Create("seat-test", size_t{1} << 20);
    ASSERT_TRUE(heap.ok()) << heap.status();
    options.bootstrap.heap = *std::move(heap);
    auto seat = Seat::Take(std::move(options));
    ASSERT_TRUE(seat.ok()) << seat.status();
    seats_[rank] = *std::move(seat);
    const absl::StatusOr<Connections> met = seats_[rank]->Meet(kLong);
    ASSERT_TRUE(met.ok()) << met.status();
  }

  cohort::testing::CoordinatorProcess coordinator_{{}};
  Mutex mutex_;
  bool Await(const bool& flag) {
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&flag), kLong);
  }
  void LetGo() {
    MutexLock lock(&mutex_);
    let_go_ = true;
  }

  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;
  bool first_broke_ ABSL_GUARDED_BY(mutex_) = false;
  bool holds_events_ ABSL_GUARDED_BY(mutex_) = false;
  bool let_go_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Seat> seats_[kRanks];
};

TEST_F(SeatTest, WhatEndedBeforeAnybodyAttendsIsToldAtOnce) {
  ASSERT_NE(seats_[0], nullptr);
  seats_[1].reset();
  ASSERT_TRUE(Await(has_left_));
  std::string told;
  seats_[0]->Attend([&told](const std::string& cause) { told = cause; });
  EXPECT_THAT(told, HasSubstr("rank 1"));
}

TEST_F(SeatTest, AnEndOfTheGenerationBeforeThatIsToldLateEndsNothing) {
  ASSERT_NE(seats_[0], nullptr);
  // Rank 0 gets an error that ends nothing, and no further event until LetGo.
  ASSERT_TRUE(seats_[1]->membership().ReportError("a cough", /*fatal=*/false).ok());
  ASSERT_TRUE(Await(holds_events_));
  // Rank 0 does not notice by itself that rank 1 leaves.
  seats_[0]->Disregard();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      const absl::StatusOr<Connections> met = seats_[rank]->Rejoin(kLong);
      EXPECT_TRUE(met.ok()) << met.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(seats_[0]->membership().generation(), 2);
  std::string told;
  seats_[0]->Attend([&told](const std::string& cause) { told = cause; });
  LetGo();
  // The seat gets the event before this test does.
  ASSERT_TRUE(Await(first_broke_)) << "it was never told how generation 1 ended";
  EXPECT_EQ(told, "");
  seats_[0]->Disregard();
}

}  // namespace
}  // namespace cohort::worker
