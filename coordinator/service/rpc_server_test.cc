#include "coordinator/service/rpc_server.h"

#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/journal/memory_journal.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

void SetSeconds(int64_t seconds, google::protobuf::Duration* duration) {
  duration->set_seconds(seconds);
}

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

// A coordinator on a port of its own, and a channel to it.
class RpcServerTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.limits.max_inline_bytes = 64 << 10;
    engine_ = Engine::Start(options, std::make_unique<MemoryJournal>(), Clock::Steady()).value();
    dispatcher_ = std::make_unique<Dispatcher>(DispatcherOptions(), *engine_, nullptr);
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

  RpcServerOptions server_options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

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

// A call that the executor frees stays whole until that thread gets the processor; on a busy machine
// finished calls pile up there. One call, one wake-up: that is how one sees it from outside.
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
  // The executor has other work, too.
  EXPECT_LT(ExecutorSleeps() - before, kCalls / 4);
}

// All members get the same values, small ones inline.
TEST_F(RpcServerTest, AllGatherInlineAndAsABlob) {
  const std::vector<Joined> members = Form("job", 3);
  for (const size_t size : {size_t{10}, size_t{50000}}) {
    std::vector<v1::AllGatherResponse> responses(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        v1::AllGatherRequest request;
        *request.mutable_scope() = members[rank].scope;
        request.mutable_payload()->set_inline_(std::string(size, static_cast<char>('a' + rank)));
        grpc::ClientContext context;
        const grpc::Status status =
            v1::MessagingService::NewStub(channel_)->AllGather(&context, request, &responses[rank]);
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < 3; ++rank) {
      const v1::Values& values = responses[rank].values();
      if (size == 10) {
        EXPECT_EQ(values.inline_(), std::string(size, 'a') + std::string(size, 'b') +
                                        std::string(size, 'c'));
        EXPECT_THAT(values.sizes_bytes(), testing::ElementsAre(size, size, size));
        continue;
      }
      // 150,000 bytes together are over max_inline_bytes: to be fetched.
      ASSERT_TRUE(values.has_blob());
      EXPECT_THAT(values.sizes_bytes(), testing::ElementsAre(50000, 50000, 50000));
      v1::DownloadRequest request;
      *request.mutable_scope() = members[rank].scope;
      request.set_blob(values.blob().blob());
      grpc::ClientContext context;
      auto reader = v1::MessagingService::NewStub(channel_)->Download(&context, request);
      std::string all;
      v1::DownloadResponse part;
      while (reader->Read(&part)) {
        EXPECT_EQ(part.offset(), static_cast<int64_t>(all.size()));
        all += part.data();
      }
      const grpc::Status status = reader->Finish();
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(all, std::string(size, 'a') + std::string(size, 'b') + std::string(size, 'c'));
      EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size()),
                values.blob().crc32());
    }
  }
}

TEST_F(RpcServerTest, UploadIsCheckedAndTheReceiverDownloadsIt) {
  const std::vector<Joined> members = Form("job", 2);
  auto messages = v1::MessagingService::NewStub(channel_);
  std::string value;
  for (int i = 0; i < 300000; ++i) value.push_back(static_cast<char>(i * 7));
  const uint32_t crc =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(value.data()), value.size()));
  const auto upload = [&](uint32_t checksum, bool gap, v1::UploadResponse* response) {
    grpc::ClientContext context;
    auto writer = messages->Upload(&context, response);
    v1::UploadRequest part;
    *part.mutable_scope() = members[0].scope;
    part.set_size_bytes(static_cast<int64_t>(value.size()));
    part.set_crc32(checksum);
    part.set_data(value.substr(0, 100000));
    writer->Write(part);
    v1::UploadRequest rest;
    rest.set_offset(gap ? 100001 : 100000);
    rest.set_data(value.substr(100000));
    writer->Write(rest);
    writer->WritesDone();
    return writer->Finish();
  };
  v1::UploadResponse uploaded;
  EXPECT_EQ(upload(crc + 1, false, &uploaded).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(upload(crc, true, &uploaded).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status status = upload(crc, false, &uploaded);
  ASSERT_TRUE(status.ok()) << status.error_message();
  {
    v1::SendRequest request;
    *request.mutable_scope() = members[0].scope;
    request.set_destination(1);
    request.mutable_payload()->mutable_blob()->set_blob(uploaded.blob());
    v1::SendResponse response;
    grpc::ClientContext context;
    const grpc::Status sent = messages->Send(&context, request, &response);
    ASSERT_TRUE(sent.ok()) << sent.error_message();
  }
  v1::ReceiveResponse received;
  {
    v1::ReceiveRequest request;
    *request.mutable_scope() = members[1].scope;
    grpc::ClientContext context;
    const grpc::Status got = messages->Receive(&context, request, &received);
    ASSERT_TRUE(got.ok()) << got.error_message();
  }
  ASSERT_TRUE(received.payload().has_blob());
  EXPECT_EQ(received.payload().blob().crc32(), crc);
  const auto download = [&](const v1::Scope& scope, int64_t offset, std::string* all) {
    v1::DownloadRequest request;
    *request.mutable_scope() = scope;
    request.set_blob(received.payload().blob().blob());
    request.set_offset(offset);
    grpc::ClientContext context;
    auto reader = messages->Download(&context, request);
    v1::DownloadResponse part;
    while (reader->Read(&part)) *all += part.data();
    return reader->Finish();
  };
  std::string all;
  // Not the sender's to read, and not in one piece from the middle.
  EXPECT_EQ(download(members[0].scope, 0, &all).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(download(members[1].scope, 299990, &all).ok());
  EXPECT_EQ(all, value.substr(299990));
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
    while (engine_->Stats().total.waiter_count == 0) absl::SleepFor(absl::Milliseconds(1));
    context.TryCancel();
  });
  v1::ReceiveResponse response;
  const grpc::Status status =
      v1::MessagingService::NewStub(channel_)->Receive(&context, request, &response);
  canceller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  for (int i = 0; i < 1000 && dispatcher_->active() > 0; ++i) absl::SleepFor(absl::Milliseconds(5));
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
  request.mutable_scope()->set_group("nobody");
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

TEST_F(RpcServerTest, ATakenPortIsAnError) {
  RpcServerOptions options;
  options.listen = server_->addresses();
  const auto second = RpcServer::Start(options, *dispatcher_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), testing::HasSubstr(options.listen[0]));
}

// The local addresses that this process listens on at `port`, in the hexadecimal of /proc.
std::vector<std::string> Listening(const char* table, int port) {
  std::vector<std::string> found;
  std::ifstream file(table);
  const std::string suffix = absl::StrFormat(":%04X", port);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() > 3 && fields[3] == "0A" && absl::EndsWith(fields[1], suffix)) {
      found.push_back(fields[1].substr(0, fields[1].size() - suffix.size()));
    }
  }
  return found;
}

TEST_F(RpcServerTest, BoundIsExactlyWhatWasAsked) {
  const std::string address = server_->addresses()[0];
  ASSERT_TRUE(absl::StartsWith(address, "127.0.0.1:"));
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  EXPECT_GT(port, 0);
  // gRPC may open an IPv6 socket for it, bound to the same IPv4 address in its IPv6 spelling.
  std::vector<std::string> bound = Listening("/proc/net/tcp", port);
  for (const std::string& v6 : Listening("/proc/net/tcp6", port)) bound.push_back(v6);
  EXPECT_THAT(bound,
              testing::ElementsAre(testing::AnyOf("0100007F", "0000000000000000FFFF00000100007F")));
}

TEST_F(RpcServerTest, UnixSocket) {
  // Not below the test's own folder, whose name may be too long for a socket.
  const std::string path = absl::StrCat("/tmp/cohort-rpc-server-test-", getpid(), ".sock");
  RpcServerOptions options;
  options.listen = {absl::StrCat("unix:", path)};
  auto server = RpcServer::Start(options, *dispatcher_);
  ASSERT_TRUE(server.ok()) << server.status();
  auto channel = grpc::CreateChannel((*server)->addresses()[0], grpc::InsecureChannelCredentials());
  v1::ServerStatsResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(v1::AdminService::NewStub(channel)
                  ->ServerStats(&context, v1::ServerStatsRequest(), &response)
                  .ok());
  EXPECT_EQ(response.journal(), "memory");
}

// C10: a thousand parked calls, each is answered, and the server is gone well inside its grace.
TEST_F(RpcServerTest, ShutdownAnswersAThousandParkedCalls) {
  constexpr int kCalls = 1000;
  struct Pending {
    grpc::ClientContext context;
    v1::GetRequest request;
    v1::GetResponse response;
  };
  std::vector<std::unique_ptr<v1::StoreService::Stub>> stubs;
  for (int i = 0; i < 4; ++i) stubs.push_back(v1::StoreService::NewStub(NewChannel()));
  std::vector<Pending> calls(kCalls);
  std::mutex mutex;
  std::condition_variable changed;
  int unavailable = 0;
  int answered = 0;
  for (int i = 0; i < kCalls; ++i) {
    Pending& call = calls[i];
    call.request.add_keys(absl::StrCat("absent-", i));
    SetSeconds(600, call.request.mutable_wait());
    stubs[i % stubs.size()]->async()->Get(
        &call.context, &call.request, &call.response, [&](grpc::Status status) {
          std::lock_guard<std::mutex> lock(mutex);
          ++answered;
          unavailable += status.error_code() == grpc::StatusCode::UNAVAILABLE;
          changed.notify_one();
        });
  }
  while (engine_->Stats().total.waiter_count < kCalls) absl::SleepFor(absl::Milliseconds(5));
  // A watch and an upload that never goes on are in the way too.
  v1::WatchRequest watch;
  grpc::ClientContext watch_context;
  auto reader = stubs[0]->Watch(&watch_context, watch);
  reader->WaitForInitialMetadata();
  const absl::Time start = absl::Now();
  server_->Shutdown(absl::Seconds(10));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(dispatcher_->active(), 0);
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_for(lock, std::chrono::seconds(10), [&] { return answered == kCalls; });
  EXPECT_EQ(answered, kCalls);
  EXPECT_EQ(unavailable, kCalls);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcServerTest, ShutdownEndsAnUploadThatStands) {
  grpc::ClientContext context;
  v1::UploadResponse response;
  auto writer = v1::MessagingService::NewStub(channel_)->Upload(&context, &response);
  for (int i = 0; i < 1000 && dispatcher_->active() == 0; ++i)
    absl::SleepFor(absl::Milliseconds(2));
  ASSERT_EQ(dispatcher_->active(), 1);
  server_->Shutdown(absl::Milliseconds(200));
  EXPECT_FALSE(writer->Finish().ok());
}

}  // namespace
}  // namespace cohort::coordinator
