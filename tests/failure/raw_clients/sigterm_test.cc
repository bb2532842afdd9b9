// SIGTERM while a thousand calls are parked: the coordinator answers each call, and exits with 0
// within its grace.
#include <signal.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::ChildProcess;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Stubs;

constexpr int kCalls = 1000;
constexpr absl::Duration kGrace = absl::Seconds(10);

// A call of a generated stub, with the objects that must live until its answer.
template <typename Request, typename Response>
struct Call {
  std::unique_ptr<grpc::ClientContext> context = testing::Context(kTimeout + absl::Seconds(30));
  Request request;
  Response response;
};

class SigtermTest : public ::testing::Test {
 protected:
  SigtermTest() : coordinator_({"coordinator/cohort-coordinator", 0, {"--drain-grace", "10s"}}) {}

  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    for (int index = 0; index < 8; ++index) {
      stubs_.push_back(std::make_unique<Stubs>(coordinator_.address(), index));
    }
  }

  // Joins a whole group through bare stubs, and returns the scopes of its sessions.
  std::vector<v1::Scope> JoinAll(const std::string& group, int world_size) {
    std::vector<Call<v1::JoinRequest, v1::JoinResponse>> calls(world_size);
    Answers<grpc::Status> answers(world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      calls[rank].request = testing::JoinRequestOf(group, rank, world_size);
      stubs_[rank % 8]->groups->async()->Join(calls[rank].context.get(), &calls[rank].request,
                                              &calls[rank].response, answers.Slot(rank));
    }
    std::vector<v1::Scope> scopes;
    // Every call has a deadline, so all are answered before `calls` is destroyed.
    EXPECT_TRUE(answers.AwaitAll(kTimeout * 2));
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_TRUE(answers[rank].ok()) << answers[rank].error_message();
      v1::Scope scope;
      scope.set_group(group);
      scope.set_generation(calls[rank].response.generation());
      scope.set_session(calls[rank].response.session());
      scopes.push_back(scope);
    }
    return scopes;
  }

  CoordinatorProcess coordinator_;
  std::vector<std::unique_ptr<Stubs>> stubs_;
};

TEST_F(SigtermTest, AThousandParkedCallsAreEachAnswered) {
  const std::vector<v1::Scope> scopes = JoinAll("group", kCalls + 1);
  std::vector<Call<v1::BarrierRequest, v1::BarrierResponse>> calls(kCalls);
  Answers<grpc::Status> answers(kCalls);
  for (int rank = 0; rank < kCalls; ++rank) {
    *calls[rank].request.mutable_scope() = scopes[rank];
    calls[rank].request.mutable_round()->set_name("step");
    calls[rank].request.mutable_round()->mutable_wait()->set_seconds(60);
    stubs_[rank % 8]->messages->async()->Barrier(calls[rank].context.get(), &calls[rank].request,
                                                 &calls[rank].response, answers.Slot(rank));
  }
  ASSERT_TRUE(testing::Eventually([&] {
    v1::ServerStatsResponse stats;
    return stubs_[0]->admin->ServerStats(testing::Context().get(), {}, &stats).ok() &&
           stats.waiter_count() == kCalls;
  }));

  const Instant start = Clock::Steady().Now();
  const absl::StatusOr<int> code = coordinator_.Terminate(kGrace + absl::Seconds(5));
  std::cout << "ended " << Clock::Steady().Now() - start << " after SIGTERM" << std::endl;
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  EXPECT_LE(Clock::Steady().Now() - start, kGrace);

  ASSERT_TRUE(answers.AwaitAll()) << answers.arrived() << " of " << kCalls << " were answered";
  std::map<std::string, int> texts;
  for (int rank = 0; rank < kCalls; ++rank) {
    EXPECT_EQ(answers[rank].error_code(), grpc::StatusCode::UNAVAILABLE);
    ++texts[answers[rank].error_message()];
  }
  for (const auto& [text, count] : texts) {
    std::cout << count << " times: " << text << std::endl;
    // The text is that of an answer, not of a broken connection.
    EXPECT_THAT(text, HasSubstr("drain"));
  }
}

// No call is parked, and metrics are served.
TEST(IdleSigtermTest, EndsAtOnceWhileItsMetricsAreServed) {
  ChildProcess coordinator({"coordinator/cohort-coordinator", "--listen", "127.0.0.1:0",
                            "--metrics-listen", "127.0.0.1:0"});
  ASSERT_TRUE(testing::Eventually(
      [&] { return absl::StrContains(coordinator.ErrorText(), "metrics_port="); }));
  const Instant start = Clock::Steady().Now();
  coordinator.Signal(SIGTERM);
  const absl::StatusOr<int> code = coordinator.Wait(kTimeout);
  const absl::Duration took = Clock::Steady().Now() - start;
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  EXPECT_LT(took, absl::Seconds(1));
  std::cout << "ended " << took << " after SIGTERM" << std::endl;
}

TEST_F(SigtermTest, WatchersAndMembersThatAreStillJoiningAreAnsweredToo) {
  const std::vector<v1::Scope> scopes = JoinAll("group", 4);
  // A join that waits for a second member, a pop, a get, a fetch: one call of each kind of wait.
  Call<v1::JoinRequest, v1::JoinResponse> join;
  join.request = testing::JoinRequestOf("half", 0, 2);
  Call<v1::ReceiveRequest, v1::ReceiveResponse> receive;
  *receive.request.mutable_scope() = scopes[0];
  receive.request.set_source(1);
  receive.request.mutable_wait()->set_seconds(60);
  Call<v1::QueuePopRequest, v1::QueuePopResponse> pop;
  *pop.request.mutable_scope() = scopes[1];
  pop.request.set_queue("work");
  pop.request.mutable_wait()->set_seconds(60);
  Call<v1::GetRequest, v1::GetResponse> get;
  *get.request.mutable_scope() = scopes[2];
  get.request.add_keys("absent");
  get.request.mutable_wait()->set_seconds(60);
  Call<v1::FetchRequest, v1::FetchResponse> fetch;
  *fetch.request.mutable_scope() = scopes[3];
  fetch.request.set_name("weights");
  fetch.request.mutable_wait()->set_seconds(60);
  Answers<grpc::Status> answers(5);
  Stubs& stubs = *stubs_[0];
  stubs.groups->async()->Join(join.context.get(), &join.request, &join.response, answers.Slot(0));
  stubs.messages->async()->Receive(receive.context.get(), &receive.request, &receive.response,
                                   answers.Slot(1));
  stubs.store->async()->QueuePop(pop.context.get(), &pop.request, &pop.response, answers.Slot(2));
  stubs.store->async()->Get(get.context.get(), &get.request, &get.response, answers.Slot(3));
  stubs.unique_ids->async()->Fetch(fetch.context.get(), &fetch.request, &fetch.response,
                                   answers.Slot(4));
  ASSERT_TRUE(testing::Eventually([&] {
    v1::ServerStatsResponse stats;
    return stubs.admin->ServerStats(testing::Context().get(), {}, &stats).ok() &&
           stats.waiter_count() == 5;
  }));
  v1::WatchGroupRequest watch;
  *watch.mutable_scope() = scopes[0];
  const auto context = testing::Context(kTimeout);
  const auto stream = stubs.groups->WatchGroup(context.get(), watch);
  v1::WatchRequest watch_keys;
  *watch_keys.mutable_scope() = scopes[0];
  const auto keys_context = testing::Context(kTimeout);
  const auto keys_stream = stubs.store->Watch(keys_context.get(), watch_keys);
  // gRPC alone answers calls that arrive while it ends: CANCELLED.
  ASSERT_TRUE(testing::Eventually([&] {
    v1::ServerStatsResponse stats;
    return stubs.admin->ServerStats(testing::Context().get(), {}, &stats).ok() &&
           stats.tenants_size() == 1 && stats.tenants(0).stream_count() == 2;
  }));

  const Instant start = Clock::Steady().Now();
  const absl::StatusOr<int> code = coordinator_.Terminate(kGrace + absl::Seconds(5));
  std::cout << "ended " << Clock::Steady().Now() - start << " after SIGTERM" << std::endl;
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  ASSERT_TRUE(answers.AwaitAll());
  for (int index = 0; index < 5; ++index) {
    EXPECT_EQ(answers[index].error_code(), grpc::StatusCode::UNAVAILABLE) << index;
    EXPECT_THAT(answers[index].error_message(), HasSubstr("drain")) << index;
  }
  v1::WatchGroupResponse event;
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::WatchResponse key_event;
  while (keys_stream->Read(&key_event)) {
  }
  EXPECT_EQ(keys_stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// The library repeats a call that was answered UNAVAILABLE until its timeout; then its callers get
// the answer as well.
TEST_F(SigtermTest, EachMemberGetsAnAnswerWithinItsTimeout) {
  constexpr int kWorldSize = 200;
  std::vector<std::shared_ptr<client::Connection>> connections;
  for (int index = 0; index < 8; ++index)
    connections.push_back(testing::Connect(coordinator_.address()));
  testing::Members members = testing::JoinAll(connections, "library", kWorldSize);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  client::RoundOptions options;
  options.timeout = absl::Seconds(5);
  Answers<BarrierAnswer> answers(kWorldSize - 1);
  for (int rank = 1; rank < kWorldSize; ++rank) {
    members[rank]->async().Barrier(options, BarrierSlot(answers, rank - 1));
  }
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "library", kWorldSize - 1));
  const absl::StatusOr<int> code = coordinator_.Terminate(kGrace + absl::Seconds(5));
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  ASSERT_TRUE(answers.AwaitAll());
  for (int index = 0; index < kWorldSize - 1; ++index) {
    EXPECT_EQ(answers[index].status.code(), absl::StatusCode::kUnavailable)
        << answers[index].status;
  }
}

}  // namespace
}  // namespace cohort
