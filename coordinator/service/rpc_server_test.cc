// Calls and streams over a socket.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/engine/discard_reply.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

// How often threads of gRPC's executor, which share one name, have gone to sleep.
int64_t ExecutorSleeps() {
  int64_t sleeps = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (!absl::StartsWith(name, "default-execut")) continue;
    std::ifstream status(task.path() / "status");
    std::string word;
    int64_t count = 0;
    while (status >> word) {
      if (word == "voluntary_ctxt_switches:" && status >> count) sleeps += count;
    }
  }
  return sleeps;
}

using RpcServerTest = RpcServerTestBase;

TEST_F(RpcServerTest, CreateJoinBarrierSendReceive) {
  auto groups = v1::GroupService::NewStub(channel_);
  auto messages = v1::MessagingService::NewStub(channel_);
  {
    v1::CreateGroupRequest request;
    request.mutable_scope()->set_group("job");
    request.mutable_spec()->set_min_members(2);
    request.mutable_spec()->set_max_members(2);
    v1::CreateGroupResponse response;
    grpc::ClientContext context;
    const grpc::Status status = groups->CreateGroup(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const std::vector<Joined> members = Form("job", 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(members[rank].response.rank(), rank);
    EXPECT_EQ(members[rank].response.world_size(), 2);
    ASSERT_EQ(members[rank].response.members_size(), 2);
    EXPECT_EQ(members[rank].response.members(1).name(), "m1");
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      v1::BarrierRequest request;
      *request.mutable_scope() = members[rank].scope;
      request.mutable_round()->set_name("step");
      v1::BarrierResponse response;
      grpc::ClientContext context;
      const grpc::Status status = messages->Barrier(&context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.result().outcome(), v1::ROUND_OUTCOME_RELEASED);
      EXPECT_EQ(response.result().number(), 1);
      EXPECT_EQ(response.result().next_number(), 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  {
    v1::SendRequest request;
    *request.mutable_scope() = members[0].scope;
    request.set_destination(1);
    request.mutable_payload()->set_inline_("hello");
    v1::SendResponse response;
    grpc::ClientContext context;
    const grpc::Status status = messages->Send(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  v1::ReceiveRequest request;
  *request.mutable_scope() = members[1].scope;
  v1::ReceiveResponse response;
  grpc::ClientContext context;
  const grpc::Status status = messages->Receive(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.outcome(), v1::RECEIVE_OUTCOME_RECEIVED);
  EXPECT_EQ(response.payload().inline_(), "hello");
  EXPECT_EQ(response.source(), 0);
}

// A client that knows a receipt can free the value.
TEST_F(RpcServerTest, ReceiptsCannotBeGuessed) {
  auto store = v1::StoreService::NewStub(channel_);
  const auto push = [&](const std::string& value) {
    v1::QueuePushRequest request;
    request.set_queue("queue");
    request.set_value(value);
    v1::QueuePushResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(store->QueuePush(&context, request, &response).ok());
  };
  const auto pop = [&](const std::string& operation, const std::vector<int64_t>& receipts = {}) {
    v1::QueuePopRequest request;
    request.mutable_scope()->set_operation_id(operation);
    for (const int64_t receipt : receipts) {
      request.mutable_scope()->add_acknowledged_receipts(receipt);
    }
    request.set_queue("queue");
    v1::QueuePopResponse response;
    grpc::ClientContext context;
    const grpc::Status status = store->QueuePop(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  push("first");
  push("second");
  const v1::QueuePopResponse first = pop("the first call..");
  const v1::QueuePopResponse second = pop("the second call.");
  ASSERT_TRUE(first.found());
  ASSERT_TRUE(second.found());
  // Another client tries the numbers around all that it knows.
  std::vector<int64_t> guesses;
  for (const int64_t known : {int64_t{2000}, second.receipt(), second.sequence() + 2000}) {
    for (int64_t guess = known - 600; guess <= known + 600; ++guess) {
      if (guess > 0 && guess != second.receipt()) guesses.push_back(guess);
    }
  }
  EXPECT_FALSE(pop("another client..", guesses).found());
  const v1::QueuePopResponse again = pop("the first call..");
  EXPECT_TRUE(again.found());
  EXPECT_EQ(again.value(), "first");
  EXPECT_EQ(again.receipt(), first.receipt());
  // Its consumer's acknowledgement does free it.
  EXPECT_FALSE(pop("another client.2", {first.receipt()}).found());
  EXPECT_FALSE(pop("the first call..").found());
}

// gRPC keeps no order between calls in flight together; their numbers do.
TEST_F(RpcServerTest, NumberedSendsInFlightTogetherAreReadInOrder) {
  constexpr int kThreads = 16;
  constexpr int kSends = 480;
  const std::vector<Joined> members = Form("job", 2);
  std::atomic<int> last{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      // Some share a connection and some do not.
      auto messages = v1::MessagingService::NewStub(thread % 2 == 0 ? channel_ : NewChannel());
      for (int order = ++last; order <= kSends; order = ++last) {
        v1::SendRequest request;
        *request.mutable_scope() = members[0].scope;
        request.set_destination(1);
        request.set_tag("grads");
        request.set_order(order);
        request.mutable_payload()->set_inline_(absl::StrCat(order));
        v1::SendResponse response;
        grpc::ClientContext context;
        context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
        const grpc::Status status = messages->Send(&context, request, &response);
        EXPECT_TRUE(status.ok()) << order << ": " << status.error_message();
      }
    });
  }
  auto messages = v1::MessagingService::NewStub(channel_);
  for (int order = 1; order <= kSends; ++order) {
    v1::ReceiveRequest request;
    *request.mutable_scope() = members[1].scope;
    request.set_tag("grads");
    SetSeconds(10, request.mutable_wait());
    v1::ReceiveResponse response;
    grpc::ClientContext context;
    const grpc::Status status = messages->Receive(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.payload().inline_(), absl::StrCat(order));
    if (HasFailure()) break;
  }
  for (std::thread& thread : threads) thread.join();
}

// A call that the executor frees stays whole until that thread gets the processor. On a busy
// machine, finished calls would pile up there. A thread that frees each call sleeps once for each.
TEST_F(RpcServerTest, FinishedCallsAreFreedWithoutAnotherThread) {
  constexpr int kCalls = 500;
  const std::vector<Joined> members = Form("job", 1);
  auto messages = v1::MessagingService::NewStub(channel_);
  const int64_t before = ExecutorSleeps();
  for (int i = 0; i < kCalls; ++i) {
    v1::BarrierRequest request;
    *request.mutable_scope() = members[0].scope;
    request.mutable_round()->set_name("step");
    v1::BarrierResponse response;
    grpc::ClientContext context;
    const grpc::Status status = messages->Barrier(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  // The executor has other work, too, the more of it the busier the machine.
  EXPECT_LT(ExecutorSleeps() - before, kCalls * 3 / 4);
}

TEST_F(RpcServerTest, ADeadlineLeavesTimeForTheDiagnosis) {
  const std::vector<Joined> members = Form("job", 2);
  v1::BarrierRequest request;
  *request.mutable_scope() = members[0].scope;
  v1::BarrierResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
  const grpc::Status status =
      v1::MessagingService::NewStub(channel_)->Barrier(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.result().outcome(), v1::ROUND_OUTCOME_TIMED_OUT);
  ASSERT_EQ(response.result().missing().missing_size(), 1);
  EXPECT_EQ(response.result().missing().missing(0).first(), 1);
}

TEST_F(RpcServerTest, WatchGroupSeesEventsAndEndsWithTheGroup) {
  const std::vector<Joined> members = Form("job", 2);
  auto groups = v1::GroupService::NewStub(channel_);
  v1::WatchGroupRequest request;
  *request.mutable_scope() = members[0].scope;
  request.set_attach(true);
  grpc::ClientContext watch_context;
  auto reader = groups->WatchGroup(&watch_context, request);
  reader->WaitForInitialMetadata();
  // A watch that asks for the first time after the end finds no group.
  ASSERT_TRUE(AwaitParked(1, 0));
  {
    v1::CloseGroupRequest close;
    *close.mutable_scope() = members[1].scope;
    v1::CloseGroupResponse response;
    grpc::ClientContext context;
    const grpc::Status status = groups->CloseGroup(&context, close, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  std::vector<v1::GroupEventKind> kinds;
  v1::WatchGroupResponse batch;
  while (reader->Read(&batch)) {
    for (const v1::GroupEvent& event : batch.events()) kinds.push_back(event.kind());
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(kinds, testing::Contains(v1::GROUP_EVENT_KIND_CLOSED));
}

TEST_F(RpcServerTest, ACancelledCallIsForgotten) {
  const std::vector<Joined> members = Form("job", 2);
  v1::ReceiveRequest request;
  *request.mutable_scope() = members[0].scope;
  grpc::ClientContext context;
  std::thread canceller([&] {
    EXPECT_TRUE(AwaitParked(1, 3));
    context.TryCancel();
  });
  v1::ReceiveResponse response;
  const grpc::Status status =
      v1::MessagingService::NewStub(channel_)->Receive(&context, request, &response);
  canceller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
  EXPECT_EQ(engine_->Stats().total.waiter_count, 0);
}

TEST_F(RpcServerTest, MalformedAndUnknownAreRefused) {
  auto groups = v1::GroupService::NewStub(channel_);
  v1::GetGroupResponse response;
  {
    v1::GetGroupRequest request;
    request.mutable_scope()->set_group("no spaces");
    grpc::ClientContext context;
    const grpc::Status status = groups->GetGroup(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), testing::HasSubstr("scope.group"));
  }
  v1::GetGroupRequest request;
  request.mutable_scope()->set_group("no-such-group");
  grpc::ClientContext context;
  EXPECT_EQ(groups->GetGroup(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcServerTest, ListGroupsPagesOverAllShards) {
  auto groups = v1::GroupService::NewStub(channel_);
  for (int i = 0; i < 25; ++i) {
    v1::CreateGroupRequest request;
    request.mutable_scope()->set_group(absl::StrFormat("g%02d", i));
    request.mutable_spec()->set_min_members(1);
    request.mutable_spec()->set_max_members(1);
    v1::CreateGroupResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(groups->CreateGroup(&context, request, &response).ok());
  }
  std::vector<std::string> names;
  std::string token;
  do {
    v1::ListGroupsRequest request;
    request.set_page_size(10);
    request.set_page_token(token);
    v1::ListGroupsResponse response;
    grpc::ClientContext context;
    const grpc::Status status = groups->ListGroups(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const v1::Group& group : response.groups()) names.push_back(group.name());
    token = response.next_page_token();
  } while (!token.empty());
  ASSERT_EQ(names.size(), 25u);
  for (int i = 0; i < 25; ++i) EXPECT_EQ(names[i], absl::StrFormat("g%02d", i));
}

// A client that leaves costs the coordinator no dump of all its groups.
TEST_F(RpcServerTest, ADumpOfAllGroupsEndsWithItsDeadlineOrItsCaller) {
  constexpr int kGroups = 5000;
  for (int i = 0; i < kGroups; ++i) {
    CreateGroupCall create;
    create.spec.min_members = create.spec.max_members = 1;
    Call call;
    call.caller.key = {"default", absl::StrCat("g", i)};
    call.body = std::move(create);
    engine_->Submit(std::move(call), DiscardReply::Get());
  }
  const auto admin = v1::AdminService::NewStub(channel_);
  int64_t started = 0;
  for (const bool cancels : {true, false}) {
    const int64_t before = observer_.Handled(absl::StatusCode::kCancelled);
    // Most often, a call is in the middle of its dump when it ends.
    for (const absl::Time end = absl::Now() + kTimeout;
         observer_.Handled(absl::StatusCode::kCancelled) == before && absl::Now() < end;) {
      grpc::ClientContext context;
      if (!cancels) context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(5)));
      std::thread canceller([&] {
        if (cancels && observer_.AwaitStarted(started + 1)) context.TryCancel();
      });
      v1::DumpWaitsResponse response;
      admin->DumpWaits(&context, v1::DumpWaitsRequest(), &response);
      canceller.join();
      EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
      ++started;
    }
    EXPECT_GT(observer_.Handled(absl::StatusCode::kCancelled), before) << "cancels: " << cancels;
  }
}

}  // namespace
}  // namespace cohort::coordinator
