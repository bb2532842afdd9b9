// Asynchronous calls of a member against a scripted coordinator: how a cancellation ends them.
// tests/rendezvous/async_calls_test.cc has their results.
#include "client/rendezvous/process_group/async_process_group.h"

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/testing/process_group_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using AsyncProcessGroupTest = ProcessGroupTestBase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The status of one asynchronous call.
class Answer {
 public:
  StatusDone Slot() {
    return [promise = promise_](absl::Status status) { promise->set_value(std::move(status)); };
  }
  template <typename T>
  Done<T> SlotFor() {
    return [promise = promise_](const absl::StatusOr<T>& value) {
      promise->set_value(value.status());
    };
  }
  // Fails the test if no answer comes.
  absl::Status Await() {
    std::future<absl::Status> future = promise_->get_future();
    if (future.wait_for(absl::ToChronoMilliseconds(kLong)) != std::future_status::ready) {
      return absl::InternalError("no answer");
    }
    return future.get();
  }

 private:
  const std::shared_ptr<std::promise<absl::Status>> promise_ =
      std::make_shared<std::promise<absl::Status>>();
};

AsyncOptions With(std::shared_ptr<Cancellation> cancellation) {
  return {absl::ZeroDuration(), std::move(cancellation)};
}

TEST_F(AsyncProcessGroupTest, ACancelledReceiveEndsWithTheReason) {
  auto group = Join();
  fake_.Hold("Receive", true);
  auto cancellation = std::make_shared<Cancellation>();
  Answer received, late;
  group->async().Receive(1, "", With(cancellation), received.SlotFor<ReceivedObject>());
  ASSERT_TRUE(fake_.AwaitSeen("Receive", 1));
  cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(received.Await(), absl::AbortedError("enough"));
  // A call that is cancelled before it starts is not sent.
  group->async().Receive(1, "", With(cancellation), late.SlotFor<ReceivedObject>());
  EXPECT_EQ(late.Await(), absl::AbortedError("enough"));
  EXPECT_THAT(fake_.Seen("Receive"), SizeIs(1));
}

TEST_F(AsyncProcessGroupTest, ACancelledReceiveIsAbandoned) {
  auto group = Join();
  fake_.Hold("Receive", true);
  auto cancellation = std::make_shared<Cancellation>();
  Answer received;
  group->async().Receive(1, "", With(cancellation), received.SlotFor<ReceivedObject>());
  ASSERT_TRUE(fake_.AwaitSeen("Receive", 1));
  const std::string operation = fake_.Seen("Receive")[0].scope.operation_id();
  cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(received.Await(), absl::AbortedError("enough"));
  // The object that it may have taken goes back.
  ASSERT_TRUE(fake_.AwaitSeen("KeepAlive", 1));
  EXPECT_THAT(fake_.Seen("KeepAlive")[0].scope.abandoned_operations(), ElementsAre(operation));
}

TEST_F(AsyncProcessGroupTest, ACancelledRoundGivesItsNumberBack) {
  auto group = Join();
  fake_.Hold("Barrier", true);
  RoundOptions round;
  round.cancellation = std::make_shared<Cancellation>();
  Answer answer, next;
  group->async().Barrier(round, [slot = answer.Slot()](absl::Status status, const RoundReport&) {
    slot(std::move(status));
  });
  ASSERT_TRUE(fake_.AwaitSeen("Barrier", 1));
  round.cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(answer.Await(), absl::AbortedError("enough"));
  fake_.Hold("Barrier", false);
  group->async().Barrier({}, [slot = next.Slot()](absl::Status status, const RoundReport&) {
    slot(std::move(status));
  });
  EXPECT_TRUE(next.Await().ok());
  EXPECT_EQ(fake_.Seen("Barrier")[1].number, fake_.Seen("Barrier")[0].number);
}

TEST_F(AsyncProcessGroupTest, ACancelledCallEndsWhileTheCoordinatorIsAway) {
  ProcessGroupOptions options = Options();
  options.connection.min_backoff = options.connection.max_backoff = kLong;
  auto group = Join(options);
  fake_.FailNext("GetGroup", std::vector<grpc::Status>(1000, Away()));
  auto cancellation = std::make_shared<Cancellation>();
  Answer answer;
  const Instant begin = Clock::Steady().Now();
  group->async().Describe(With(cancellation), answer.SlotFor<GroupInfo>());
  ASSERT_TRUE(fake_.AwaitSeen("GetGroup", 1));
  // Its answer comes after the refusal, so the cancellation finds a call that pauses.
  ASSERT_TRUE(group->Send("x", 1).ok());
  cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(answer.Await(), absl::AbortedError("enough"));
  EXPECT_LT(Clock::Steady().Now() - begin, kLong / 4);
}

TEST_F(AsyncProcessGroupTest, ACancelledSendDoesNotWaitForTheSendsBeforeIt) {
  auto group = Join();
  fake_.Hold("Send", true);
  auto cancellation = std::make_shared<Cancellation>();
  Answer first, second, third;
  group->async().Send("a", 1, "", {}, first.Slot());
  ASSERT_TRUE(fake_.AwaitSeen("Send", 1));
  group->async().Send("b", 1, "", With(cancellation), second.Slot());
  group->async().Send("c", 1, "", {}, third.Slot());
  cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(second.Await(), absl::AbortedError("enough"));
  EXPECT_THAT(fake_.Seen("Send"), SizeIs(1));
  fake_.Hold("Send", false);
  EXPECT_TRUE(first.Await().ok());
  EXPECT_TRUE(third.Await().ok());
  ASSERT_THAT(fake_.Seen("Send"), SizeIs(2));
  EXPECT_EQ(fake_.Seen("Send")[1].object, "c");
}

TEST_F(AsyncProcessGroupTest, ABlockingSendThatIsCancelledDoesNotWaitForTheSendsBeforeIt) {
  auto group = Join();
  fake_.Hold("Send", true);
  Answer first;
  group->async().Send("a", 1, "", {}, first.Slot());
  ASSERT_TRUE(fake_.AwaitSeen("Send", 1));
  Cancellation cancellation;
  auto second = std::async(std::launch::async, [&] {
    const CancellationScope scope(cancellation);
    return group->Send("b", 1);
  });
  cancellation.Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(second.get(), absl::AbortedError("enough"));
  fake_.Hold("Send", false);
  EXPECT_TRUE(first.Await().ok());
}

TEST_F(AsyncProcessGroupTest, AMembershipWhoseJoinWasCancelledIsLeft) {
  fake_.Hold("Join", true);
  fake_.set_complete(true);
  ProcessGroupOptions options = Options();
  options.cancellation = std::make_shared<Cancellation>();
  Answer joined;
  ProcessGroup::CreateAsync(options, joined.SlotFor<std::unique_ptr<ProcessGroup>>());
  ASSERT_TRUE(fake_.AwaitSeen("Join", 1));
  fake_.Hold("GetGroup", true);
  options.cancellation->Cancel(absl::AbortedError("enough"));
  ASSERT_TRUE(fake_.AwaitSeen("GetGroup", 1));
  fake_.Hold("Join", false);
  fake_.Hold("GetGroup", false);
  EXPECT_EQ(joined.Await(), absl::AbortedError("enough"));
  EXPECT_THAT(fake_.Seen("Join"), SizeIs(2));
  EXPECT_THAT(fake_.Seen("Leave"), SizeIs(1));
}

TEST_F(AsyncProcessGroupTest, AMembershipThatLosesTheGroupJoinsAgain) {
  auto group = Join();
  fake_.FailNext("Join", {grpc::Status(grpc::StatusCode::ABORTED, "another generation")});
  Answer rejoined;
  group->async().Rejoin({}, rejoined.Slot());
  EXPECT_TRUE(rejoined.Await().ok());
  EXPECT_THAT(fake_.Seen("Join"), SizeIs(3));
}

TEST_F(AsyncProcessGroupTest, WrongArgumentsOfMessagesAreNotSent) {
  auto group = Join();
  Answer sent, received;
  group->async().Send("x", 0, "", {}, sent.Slot());
  group->async().Receive(7, "", {}, received.SlotFor<ReceivedObject>());
  for (Answer* answer : {&sent, &received}) {
    EXPECT_EQ(answer->Await().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(fake_.Seen("Send"), IsEmpty());
}

}  // namespace
}  // namespace cohort::client
