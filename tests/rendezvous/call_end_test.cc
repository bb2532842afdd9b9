// Calls end in time if the coordinator does not answer, and when their caller cancels them: by
// framed RPC, which each test connects first, and by gRPC.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"

namespace cohort::client {
namespace {

// Far more than a call may take after its timeout or its cancellation.
constexpr absl::Duration kSoon = absl::Seconds(20);
// The first calls of a connection go by gRPC, until framed RPC has connected.
constexpr int kFirstCalls = 50;

using CallEndTest = RendezvousTestBase;

TEST_F(CallEndTest, ABlockingCallEndsSoonAfterItsTimeout) {
  for (const bool framed_rpc : {true, false}) {
    SCOPED_TRACE(absl::StrCat("framed_rpc ", framed_rpc));
    ConnectionOptions options;
    options.address = coordinator_.address();
    options.framed_rpc = framed_rpc;
    const auto store = StoreClient::Create(*Connection::Create(options), "");
    for (int i = 0; i < kFirstCalls; ++i) ASSERT_TRUE(store->Put("key", "value").ok());
    coordinator_.Pause();
    const absl::Time begin = absl::Now();
    const absl::Status status = store->Put("key", "value", {}, absl::Seconds(1)).status();
    EXPECT_LT(absl::Now() - begin, kSoon);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    coordinator_.Resume();
  }
}

TEST_F(CallEndTest, AnAsynchronousCallEndsSoonAfterItsTimeout) {
  for (const bool framed_rpc : {true, false}) {
    SCOPED_TRACE(absl::StrCat("framed_rpc ", framed_rpc));
    ProcessGroupOptions options = Options(0, 1);
    options.group = absl::StrCat("framed_rpc-", framed_rpc);
    options.connection.framed_rpc = framed_rpc;
    const auto group = ProcessGroup::Create(options);
    ASSERT_TRUE(group.ok()) << group.status();
    for (int i = 0; i < kFirstCalls; ++i) ASSERT_TRUE((*group)->Barrier({"step"}).ok());
    coordinator_.Pause();
    RoundOptions round;
    round.name = "step";
    round.timeout = absl::Seconds(1);
    absl::Notification ended;
    absl::Status status;
    (*group)->async().Barrier(round, [&](const absl::Status& result, const RoundReport&) {
      status = result;
      ended.Notify();
    });
    const bool in_time = ended.WaitForNotificationWithTimeout(kSoon);
    coordinator_.Resume();
    EXPECT_TRUE(in_time);
    ended.WaitForNotification();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
}

TEST_F(CallEndTest, ACallThatIsCancelledEndsAtOnce) {
  OnAllRanks(2, [&](ProcessGroup& group) {
    for (int i = 0; i < kFirstCalls; ++i) ASSERT_TRUE(group.Barrier({"step"}).ok());
    if (group.rank() == 1) return;
    RoundOptions round;
    round.name = "without-rank-1";
    round.timeout = 2 * kLong;
    round.cancellation = std::make_shared<Cancellation>();
    std::thread cancelling([&] {
      const std::unique_ptr<AdminClient> admin = AdminClient::Create(Connect());
      EXPECT_TRUE(Eventually([&] {
        const auto waits = admin->DumpWaits("g");
        return waits.ok() && std::any_of(waits->begin(), waits->end(), [](const ParkedCall& call) {
                 return absl::StrContains(call.operation, "without-rank-1");
               });
      }));
      round.cancellation->Cancel(absl::CancelledError("never mind"));
    });
    const absl::Time begin = absl::Now();
    const absl::Status status = group.Barrier(round);
    EXPECT_LT(absl::Now() - begin, kSoon);
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    cancelling.join();
  });
}

TEST_F(CallEndTest, ACallThatWaitsBeforeItsNextAttemptEndsAtOnceWhenItIsCancelled) {
  coordinator_.Kill();
  ProcessGroupOptions options = Options(0, 1);
  options.connection.min_backoff = 2 * kLong;
  options.connection.max_backoff = 2 * kLong;
  options.cancellation = std::make_shared<Cancellation>();
  absl::Notification failed;  // an attempt: the caller is in the pause
  options.connection.on_away = [&](const AwayReport&) {
    if (!failed.HasBeenNotified()) failed.Notify();
  };
  std::thread cancelling([&] {
    EXPECT_TRUE(failed.WaitForNotificationWithTimeout(kSoon));
    options.cancellation->Cancel(absl::CancelledError("never mind"));
  });
  const absl::Time begin = absl::Now();
  const absl::Status status = ProcessGroup::Create(options).status();
  EXPECT_LT(absl::Now() - begin, kSoon);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  cancelling.join();
}

}  // namespace
}  // namespace cohort::client
