// The addresses that the server binds, and its shutdown.
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using RpcServerLifeTest = RpcServerTestBase;

TEST_F(RpcServerLifeTest, ATakenPortIsAnError) {
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

TEST_F(RpcServerLifeTest, BoundIsExactlyWhatWasAsked) {
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

TEST_F(RpcServerLifeTest, UnixSocket) {
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
TEST_F(RpcServerLifeTest, ShutdownAnswersAThousandParkedCalls) {
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
  ASSERT_TRUE(AwaitParked(kCalls, kCalls));
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

TEST_F(RpcServerLifeTest, ShutdownEndsAnUploadThatStands) {
  grpc::ClientContext context;
  v1::UploadResponse response;
  auto writer = v1::MessagingService::NewStub(channel_)->Upload(&context, &response);
  ASSERT_TRUE(observer_.AwaitStarted(1));
  ASSERT_EQ(dispatcher_->active(), 1);
  server_->Shutdown(absl::Milliseconds(200));
  EXPECT_FALSE(writer->Finish().ok());
}

}  // namespace
}  // namespace cohort::coordinator
