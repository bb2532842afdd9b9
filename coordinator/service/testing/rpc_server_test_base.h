// A coordinator on a port of its own, for tests.
#ifndef COHORT_COORDINATOR_SERVICE_TESTING_RPC_SERVER_TEST_BASE_H_
#define COHORT_COORDINATOR_SERVICE_TESTING_RPC_SERVER_TEST_BASE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "cohort/v1/group.grpc.pb.h"
#include "coordinator/journal/memory_journal.h"
#include "coordinator/service/dispatch/call_observer.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/rpc_server.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {

inline void SetSeconds(int64_t seconds, google::protobuf::Duration* duration) {
  duration->set_seconds(seconds);
}

// Longer than anything here takes; only a hang reaches it.
inline constexpr absl::Duration kTimeout = absl::Seconds(20);

// Counts calls as they come.
class CountingObserver final : public CallObserver {
 public:
  void OnStarted(Method) override {
    MutexLock lock(&mutex_);
    ++started_;
  }
  void OnHandled(Method, absl::StatusCode code, absl::Duration) override {
    MutexLock lock(&mutex_);
    ++handled_[code];
  }
  int64_t Handled(absl::StatusCode code) {
    MutexLock lock(&mutex_);
    return handled_[code];
  }
  bool AwaitStarted(int64_t count) {
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return started_ >= count; };
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kTimeout);
  }

 private:
  Mutex mutex_;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<absl::StatusCode, int64_t> handled_ ABSL_GUARDED_BY(mutex_);
};

// A coordinator on a port of its own, and a channel to it.
class RpcServerTestBase : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_options_.limits.max_inline_bytes = 64 << 10;
    engine_ = Engine::Start(engine_options_, std::make_unique<MemoryJournal>(), *clock_).value();
    dispatcher_ = std::make_unique<Dispatcher>(dispatcher_options_, *engine_, &observer_);
    auto server = RpcServer::Start(server_options_, *dispatcher_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = NewChannel();
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(absl::Seconds(5));
    EXPECT_EQ(dispatcher_->active(), 0);
  }

  std::shared_ptr<grpc::Channel> NewChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->addresses()[0], grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  // Until `count` calls wait in the engine, `started_count` having come since the start.
  bool AwaitParked(int64_t count, int64_t started_count) {
    if (!observer_.AwaitStarted(started_count)) return false;
    // The last of them may still be on its way from there.
    const absl::Time end = absl::Now() + kTimeout;
    while (engine_->Stats().total.waiter_count < count && absl::Now() < end) {
      std::this_thread::yield();
    }
    return engine_->Stats().total.waiter_count >= count;
  }

  struct Joined {
    v1::JoinResponse response;
    v1::Scope scope;
  };
  // Joins `world_size` members at once; all must get in.
  std::vector<Joined> Form(const std::string& group, int world_size) {
    std::vector<Joined> members(world_size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([&, rank] {
        v1::JoinRequest request;
        request.mutable_scope()->set_group(group);
        request.set_member(absl::StrCat("m", rank));
        request.set_incarnation(1 + rank);
        request.set_rank(rank);
        request.set_with_members(true);
        request.mutable_spec()->set_min_members(world_size);
        request.mutable_spec()->set_max_members(world_size);
        SetSeconds(10, request.mutable_wait());
        grpc::ClientContext context;
        auto stub = v1::GroupService::NewStub(channel_);
        Joined& member = members[rank];
        const grpc::Status status = stub->Join(&context, request, &member.response);
        EXPECT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(member.response.outcome(), v1::JOIN_OUTCOME_JOINED);
        member.scope.set_group(group);
        member.scope.set_generation(member.response.generation());
        member.scope.set_session(member.response.session());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return members;
  }

  const Clock* clock_ = &Clock::Steady();
  EngineOptions engine_options_;
  RpcServerOptions server_options_;
  DispatcherOptions dispatcher_options_;
  CountingObserver observer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_TESTING_RPC_SERVER_TEST_BASE_H_
