// The client's work between calls: leases, watches, leaving, and restarts of the coordinator.
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/testing/process_group_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ProcessGroupSessionTest = ProcessGroupTestBase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ProcessGroupSessionTest, CallsInFlightEndWithTheirGroup) {
  auto group = Join();
  fake_.Hold("Receive", true);
  fake_.FailNext("Send", std::vector<grpc::Status>(1000, Away()));
  fake_.FailNext("Upload", std::vector<grpc::Status>(1000, Away()));
  absl::Notification received, sent, uploaded;
  absl::Status receive_status, send_status, upload_status;
  group->async().Receive(1, "", {kLong, nullptr}, [&](auto object) {
    receive_status = object.status();
    received.Notify();
  });
  group->async().Send("x", 1, "", {}, [&](absl::Status status) {
    send_status = std::move(status);
    sent.Notify();
  });
  group->async().AllGather(std::string(4 << 20, 'x'), {}, [&](auto objects) {
    upload_status = objects.status();
    uploaded.Notify();
  });
  ASSERT_TRUE(fake_.AwaitSeen("Receive", 1));
  ASSERT_TRUE(fake_.AwaitSeen("Send", 2));
  ASSERT_TRUE(fake_.AwaitSeen("Upload", 2));
  group.reset();
  ASSERT_TRUE(received.WaitForNotificationWithTimeout(kLong));
  ASSERT_TRUE(sent.WaitForNotificationWithTimeout(kLong));
  ASSERT_TRUE(uploaded.WaitForNotificationWithTimeout(kLong));
  EXPECT_EQ(receive_status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(send_status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(upload_status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(fake_.Seen("Leave"), SizeIs(1));
}

TEST_F(ProcessGroupSessionTest, NoCallIsRepeatedAfterItHasLeft) {
  auto group = Join();
  for (const char* const method : {"Upload", "Receive"})
    fake_.FailNext(method, std::vector<grpc::Status>(1000, Away()));
  const auto all_gather = [&] { return group->AllGather(std::string(4 << 20, 'x')).status(); };
  auto blocking = std::async(std::launch::async, all_gather);
  absl::Notification received, uploaded;
  absl::Status receive_status, upload_status;
  group->async().Receive(1, "", {kLong, nullptr}, [&](auto object) {
    receive_status = object.status();
    received.Notify();
  });
  group->async().AllGather(std::string(4 << 20, 'x'), {}, [&](auto objects) {
    upload_status = objects.status();
    uploaded.Notify();
  });
  ASSERT_TRUE(fake_.AwaitSeen("Upload", 2));
  ASSERT_TRUE(fake_.AwaitSeen("Receive", 1));
  EXPECT_TRUE(group->Leave("done").ok());
  EXPECT_EQ(blocking.get().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(received.WaitForNotificationWithTimeout(kLong));
  ASSERT_TRUE(uploaded.WaitForNotificationWithTimeout(kLong));
  EXPECT_EQ(receive_status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(upload_status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ProcessGroupSessionTest, MayBeDestroyedByItsOwnCallback) {
  auto group = Join();
  absl::Notification done;
  ProcessGroup* const raw = group.get();
  raw->async().Barrier({}, [&](const absl::Status&, const RoundReport&) {
    group.reset();
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kLong));
}

TEST_F(ProcessGroupSessionTest, LeavesOnce) {
  auto group = Join();
  EXPECT_TRUE(group->Leave("done").ok());
  EXPECT_EQ(group->Barrier().code(), absl::StatusCode::kFailedPrecondition);
  group.reset();
  EXPECT_THAT(fake_.Seen("Leave"), SizeIs(1));
}

TEST_F(ProcessGroupSessionTest, AJoinThatIsCancelledEndsWithTheReason) {
  fake_.Hold("Join", true);
  ProcessGroupOptions options = Options();
  options.cancellation = std::make_shared<Cancellation>();
  auto joined = std::async(std::launch::async, [&] { return ProcessGroup::Create(options); });
  ASSERT_TRUE(fake_.AwaitSeen("Join", 1));
  options.cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(joined.get().status(), absl::AbortedError("enough"));
  EXPECT_THAT(fake_.Seen("Leave"), IsEmpty());
  // A call that is cancelled before it starts is not sent.
  EXPECT_EQ(ProcessGroup::Create(options).status(), absl::AbortedError("enough"));
  EXPECT_THAT(fake_.Seen("Join"), SizeIs(1));
}

TEST_F(ProcessGroupSessionTest, AJoinThatIsCancelledEndsWhileTheCoordinatorIsAway) {
  fake_.FailNext("Join", std::vector<grpc::Status>(1000, Away()));
  ProcessGroupOptions options = Options();
  options.connection.min_backoff = options.connection.max_backoff = kLong;
  options.cancellation = std::make_shared<Cancellation>();
  auto joined = std::async(std::launch::async, [&] { return ProcessGroup::Create(options); });
  ASSERT_TRUE(fake_.AwaitSeen("Join", 1));
  options.cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(joined.get().status(), absl::AbortedError("enough"));
}

TEST_F(ProcessGroupSessionTest, AMembershipWhoseJoinWasCancelledIsLeft) {
  fake_.Hold("Join", true);
  fake_.Hold("GetGroup", true);
  fake_.set_complete(true);
  ProcessGroupOptions options = Options();
  options.cancellation = std::make_shared<Cancellation>();
  auto joined = std::async(std::launch::async, [&] { return ProcessGroup::Create(options); });
  ASSERT_TRUE(fake_.AwaitSeen("Join", 1));
  options.cancellation->Cancel(absl::AbortedError("enough"));
  ASSERT_TRUE(fake_.AwaitSeen("GetGroup", 1));
  fake_.Hold("Join", false);
  fake_.Hold("GetGroup", false);
  EXPECT_EQ(joined.get().status(), absl::AbortedError("enough"));
  EXPECT_THAT(fake_.Seen("Join"), SizeIs(2));
  EXPECT_THAT(fake_.Seen("Leave"), SizeIs(1));
}

TEST_F(ProcessGroupSessionTest, AScopeCancelsEachCallOfItsThread) {
  auto group = Join();
  fake_.Hold("Receive", true);
  Cancellation inner;
  {
    Cancellation outer;
    const CancellationScope outer_scope(outer);
    const CancellationScope scope(inner);
    auto canceller = std::async(std::launch::async, [&] {
      EXPECT_TRUE(fake_.AwaitSeen("Receive", 1));
      // This thread has no scope: its calls go on.
      EXPECT_TRUE(group->Send("x", 1).ok());
      inner.Cancel(absl::AbortedError("enough"));
    });
    EXPECT_EQ(group->Receive(1, "", kLong).status(), absl::AbortedError("enough"));
    canceller.get();
    // A call after the cancellation is not sent.
    EXPECT_EQ(group->Send("y", 1), absl::AbortedError("enough"));
    EXPECT_THAT(fake_.Seen("Send"), SizeIs(1));
  }
  EXPECT_TRUE(group->Send("y", 1).ok());
}

TEST_F(ProcessGroupSessionTest, AScopeCancelsCallsThatHaveACancellation) {
  auto group = Join();
  fake_.Hold("Barrier", true);
  Cancellation cancellation;
  const CancellationScope scope(cancellation);
  RoundOptions round;
  round.cancellation = std::make_shared<Cancellation>();
  auto canceller = std::async(std::launch::async, [&] {
    EXPECT_TRUE(fake_.AwaitSeen("Barrier", 1));
    cancellation.Cancel(absl::AbortedError("enough"));
  });
  EXPECT_EQ(group->Barrier(round), absl::AbortedError("enough"));
  canceller.get();
}

TEST_F(ProcessGroupSessionTest, RoundsAndRejoinsAreCancelledToo) {
  ProcessGroupOptions options = Options();
  options.cancellation = std::make_shared<Cancellation>();
  auto group = Join(options);
  fake_.Hold("Barrier", true);
  RoundOptions round;
  round.timeout = kLong;
  round.cancellation = std::make_shared<Cancellation>();
  auto waited = std::async(std::launch::async, [&] { return group->Barrier(round); });
  ASSERT_TRUE(fake_.AwaitSeen("Barrier", 1));
  round.cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(waited.get(), absl::AbortedError("enough"));
  fake_.Hold("Join", true);
  auto rejoined = std::async(std::launch::async, [&] { return group->Rejoin(kLong); });
  ASSERT_TRUE(fake_.AwaitSeen("Join", 2));
  options.cancellation->Cancel(absl::AbortedError("no more"));
  EXPECT_EQ(rejoined.get(), absl::AbortedError("no more"));
  EXPECT_THAT(fake_.Seen("Join"), SizeIs(2));
}

TEST_F(ProcessGroupSessionTest, SurvivesARestartOfTheCoordinator) {
  struct Events {
    Mutex mutex;
    std::vector<int64_t> revisions ABSL_GUARDED_BY(mutex);
    bool AwaitCount(size_t count) {
      const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
        return revisions.size() >= count;
      };
      MutexLock lock(&mutex);
      return mutex.AwaitWithTimeout(absl::Condition(&enough), kLong);
    }
  } events;
  ProcessGroupOptions options = Options();
  options.on_event = [&](const GroupEvent& event) {
    MutexLock lock(&events.mutex);
    events.revisions.push_back(event.revision);
  };
  const auto group = Join(options);
  v1::GroupEvent event;
  event.set_kind(v1::GROUP_EVENT_KIND_SUSPECTED);
  for (const int64_t revision : {11, 12}) {
    event.set_revision(revision);
    fake_.PublishEvent(event);
  }
  ASSERT_TRUE(events.AwaitCount(2));

  fake_.Hold("Barrier", true);
  absl::Notification done;
  absl::Status status;
  group->async().Barrier({}, [&](absl::Status ended, const RoundReport&) {
    status = std::move(ended);
    done.Notify();
  });
  ASSERT_TRUE(fake_.AwaitSeen("Barrier", 1));
  fake_.Stop();
  fake_.Hold("Barrier", false);
  fake_.Start();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(status.ok()) << status;
  const auto barriers = fake_.Seen("Barrier");
  EXPECT_EQ(barriers.front().scope.operation_id(), barriers.back().scope.operation_id());

  ASSERT_TRUE(fake_.AwaitSeen("WatchGroup", 2));
  EXPECT_EQ(fake_.Seen("WatchGroup")[0].offset, 10);
  EXPECT_EQ(fake_.Seen("WatchGroup").back().offset, 12);
  event.set_revision(13);
  fake_.PublishEvent(event);
  ASSERT_TRUE(events.AwaitCount(3));
  MutexLock lock(&events.mutex);
  EXPECT_THAT(events.revisions, ElementsAre(11, 12, 13));
}

TEST_F(ProcessGroupSessionTest, WatchesFromTheCurrentRevisionWhenEventsAreGone) {
  fake_.FailNext("WatchGroup", {grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "compacted")});
  const auto group = Join();
  ASSERT_TRUE(fake_.AwaitSeen("WatchGroup", 2));
  EXPECT_EQ(fake_.Seen("WatchGroup")[1].offset, 1000);
}

TEST_F(ProcessGroupSessionTest, RenewsItsLeaseAndReportsProgress) {
  fake_.set_lease(absl::Milliseconds(300));
  const auto group = Join();
  group->ReportProgress(5, "all_reduce");
  EXPECT_TRUE(fake_.AwaitSeen("KeepAlive", 3));
}

TEST_F(ProcessGroupSessionTest, ReportsEachTimeItIsAsked) {
  fake_.set_lease(absl::Hours(1));  // no renewal comes meanwhile
  const auto group = Join();
  ASSERT_TRUE(fake_.AwaitOpenWatches(1));
  for (size_t asked = 1; asked <= 3; ++asked) {
    fake_.AskForReport();
    ASSERT_TRUE(fake_.AwaitSeen("KeepAlive", asked)) << "asked " << asked << " times";
  }
}

TEST_F(ProcessGroupSessionTest, ARejoinEndsTheWatchOfTheOldGeneration) {
  const auto group = Join();
  ASSERT_TRUE(fake_.AwaitOpenWatches(1));
  for (size_t watches = 2; watches <= 3; ++watches) {
    ASSERT_TRUE(group->Rejoin().ok());
    ASSERT_TRUE(fake_.AwaitSeen("WatchGroup", watches));
    EXPECT_TRUE(fake_.AwaitOpenWatches(1)) << "after rejoin " << watches - 1;
  }
}

TEST_F(ProcessGroupSessionTest, FailsAtOnceWhenItsSessionIsGone) {
  fake_.set_lease(absl::Milliseconds(300));
  fake_.FailNext("KeepAlive", {grpc::Status(grpc::StatusCode::NOT_FOUND, "no such session")});
  const auto group = Join();
  ASSERT_TRUE(fake_.AwaitSeen("KeepAlive", 2));
  const absl::Status status = group->Barrier();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(fake_.Seen("Barrier"), IsEmpty());
  ASSERT_TRUE(group->Rejoin().ok());
  EXPECT_TRUE(group->Barrier().ok());
}

}  // namespace
}  // namespace cohort::client
