// A watch whose steps are submitted by different threads.
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/notification.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/engine/discard_reply.h"
#include "coordinator/service/engine/reply_sink.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

// No wait ends by its time.
class StandingClock final : public Clock {
 public:
  Instant Now() const override { return absl::UnixEpoch() + absl::Hours(1000); }
};

// Holds the thread that delivers its reply.
class HoldingSink final : public ReplySink {
 public:
  void OnReply(Reply&&, DeliveryContext&) override {
    has_thread.Notify();
    let_go.WaitWithTimeout(kTimeout);
  }

  Notification has_thread;
  Notification let_go;
};

class WatchServerStreamTest : public RpcServerTestBase {
 protected:
  void SetUp() override {
    clock_ = &standing_clock_;
    engine_options_.pause = absl::InfiniteDuration();
    RpcServerTestBase::SetUp();
  }

  void Submit(CallBody body, ReplySink* sink) {
    Call call;
    call.caller.key.tenant = "default";
    call.wait = absl::Hours(1);
    call.body = std::move(body);
    engine_->Submit(std::move(call), sink);
  }
  bool AwaitWaiters(int64_t count) {
    const absl::Time end = absl::Now() + kTimeout;
    while (engine_->Stats().total.waiter_count != count && absl::Now() < end) {
      std::this_thread::yield();
    }
    return engine_->Stats().total.waiter_count == count;
  }

  const StandingClock standing_clock_;
  std::deque<HoldingSink> waiting_pops_;  // TearDown ends the threads that use them
};

// The first step of the watch puts an item back, so its thread also delivers it to a waiting pop.
// There it stays, while another thread answers that step and a third one submits the next. Many
// times, because the threads may still come in another order.
TEST_F(WatchServerStreamTest, ACancelEndsTheStepThatOvertookTheOneBeforeIt) {
  const auto stub = v1::StoreService::NewStub(channel_);
  for (int i = 0; i < 10; ++i) {
    QueuePushCall push;
    push.queue = absl::StrCat("queue", i);
    push.value = "item";
    Submit(std::move(push), DiscardReply::Get());
    v1::QueuePopRequest pop;
    pop.mutable_scope()->set_operation_id(absl::StrCat("0123456789abcde", i));
    pop.set_queue(absl::StrCat("queue", i));
    v1::QueuePopResponse popped;
    grpc::ClientContext pop_context;
    ASSERT_TRUE(stub->QueuePop(&pop_context, pop, &popped).ok());
    ASSERT_TRUE(popped.found());
    HoldingSink& waiting_pop = waiting_pops_.emplace_back();
    Submit(QueuePopCall{pop.queue()}, &waiting_pop);

    v1::WatchRequest watch;
    watch.mutable_scope()->add_abandoned_operations(pop.scope().operation_id());
    watch.set_prefix("key");
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    const auto stream = stub->Watch(&context, watch);
    ASSERT_TRUE(waiting_pop.has_thread.WaitWithTimeout(kTimeout));
    PutCall put;
    put.key = "key";
    Submit(std::move(put), DiscardReply::Get());
    v1::WatchResponse delivered;
    ASSERT_TRUE(stream->Read(&delivered));
    EXPECT_EQ(delivered.events_size(), 1);
    ASSERT_TRUE(AwaitWaiters(1));
    waiting_pop.let_go.Notify();
    context.TryCancel();
    ASSERT_TRUE(AwaitWaiters(0)) << i;
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

}  // namespace
}  // namespace cohort::coordinator
