// Memberships at a real coordinator or a scripted one, in one process.
#include "worker/group/membership/rank_membership.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/shm/heap.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/testing/fake_coordinator.h"
#include "cohort/v1/group.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::worker {
namespace {

constexpr int kRanks = 2;
constexpr absl::Duration kLong = absl::Seconds(60);

class RankMembershipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([this, rank] { ConnectRank(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void ConnectRank(int rank) {
    RankMembershipOptions options;
    options.membership.connection.address = coordinator_.address();
    options.membership.group = "memberships";
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
    auto heap = shm::Heap::Create("membership-test", size_t{1} << 20);
    ASSERT_TRUE(heap.ok()) << heap.status();
    options.bootstrap.heap = *std::move(heap);
    auto member = RankMembership::Join(std::move(options));
    ASSERT_TRUE(member.ok()) << member.status();
    members_[rank] = *std::move(member);
    const absl::StatusOr<Connections> connected = members_[rank]->Connect(kLong);
    ASSERT_TRUE(connected.ok()) << connected.status();
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
  std::unique_ptr<RankMembership> members_[kRanks];
};

TEST_F(RankMembershipTest, ALeaverBeforeNotifyIsReportedAtOnce) {
  ASSERT_NE(members_[0], nullptr);
  members_[1].reset();
  ASSERT_TRUE(Await(has_left_));
  std::string told;
  members_[0]->Notify({[&told](const std::string& cause) { told = absl::StrCat("end: ", cause); },
                       [&told](int rank, const std::string& cause) {
                         told = absl::StrCat(rank, ": ", cause);
                       }});
  EXPECT_EQ(told, "1: rank 1 left the group");
}

TEST_F(RankMembershipTest, ALateEndOfTheGenerationBeforeEndsNothing) {
  ASSERT_NE(members_[0], nullptr);
  // Rank 0 gets an error that ends nothing, and no further event until LetGo.
  ASSERT_TRUE(members_[1]->process_group().ReportError("a cough", /*fatal=*/false).ok());
  ASSERT_TRUE(Await(holds_events_));
  // Rank 0 does not notice by itself that rank 1 leaves.
  members_[0]->StopWatching();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      const absl::StatusOr<Connections> connected = members_[rank]->Rejoin(kLong);
      EXPECT_TRUE(connected.ok()) << connected.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(members_[0]->process_group().generation(), 2);
  std::string told;
  members_[0]->Notify({[&told](const std::string& cause) { told = cause; },
                       [&told](int /*rank*/, const std::string& cause) { told = cause; }});
  LetGo();
  // The member gets the event before this test does.
  ASSERT_TRUE(Await(first_broke_)) << "it was never told how generation 1 ended";
  EXPECT_EQ(told, "");
  members_[0]->StopWatching();
}

// The scripted coordinator completes a generation and reports a loss in it, before it answers the
// member's call.
TEST(RejoinTest, ALossBeforeTheAnswerEndsTheGenerationAtOnce) {
  client::FakeCoordinator coordinator;
  absl::Notification is_told;
  RankMembershipOptions options;
  options.membership.connection.address = coordinator.address();
  options.membership.group = "memberships";
  options.membership.rank = 0;
  options.membership.world_size = 1;
  options.membership.on_event = [&](const client::GroupEvent& /*event*/) {
    if (!is_told.HasBeenNotified()) is_told.Notify();
  };
  auto heap = shm::Heap::Create("membership-test", size_t{1} << 20);
  ASSERT_TRUE(heap.ok()) << heap.status();
  options.bootstrap.heap = *std::move(heap);
  const auto member = RankMembership::Join(std::move(options));
  ASSERT_TRUE(member.ok()) << member.status();
  ASSERT_TRUE(coordinator.AwaitOpenWatches(1));

  coordinator.set_generation(2);
  coordinator.Hold("Join", true);
  absl::Status rejoined;
  std::thread thread([&] { rejoined = (*member)->Rejoin(kLong).status(); });
  EXPECT_TRUE(coordinator.AwaitSeen("Join", 2));
  v1::GroupEvent lost;
  lost.set_revision(11);  // after that in which the generation becomes complete
  lost.set_kind(v1::GROUP_EVENT_KIND_LOST);
  lost.set_generation(2);
  lost.set_member("trainer-1");
  lost.set_rank(1);
  coordinator.PublishEvent(lost);
  EXPECT_TRUE(is_told.WaitForNotificationWithTimeout(kLong));
  // A new watch would report it a second time.
  coordinator.Hold("WatchGroup", true);
  coordinator.Hold("Join", false);
  thread.join();
  EXPECT_TRUE(rejoined.ok()) << rejoined;
  std::string told;
  (*member)->Notify({[&told](const std::string& cause) { told = cause; },
                     [&told](int /*rank*/, const std::string& cause) { told = cause; }});
  EXPECT_THAT(told, ::testing::HasSubstr("rank 1 (trainer-1) ended the generation"));
}

}  // namespace
}  // namespace cohort::worker
