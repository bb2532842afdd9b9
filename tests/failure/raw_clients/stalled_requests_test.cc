// Clients send most of their requests' bytes, and then no more. The coordinator limits the memory
// of all such requests together. So it does not run out of memory, which gRPC does not survive.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/limited_coordinator.h"
#include "tests/failure/testing/stubs.h"

namespace cohort {
namespace {

using testing::LimitedCoordinator;
using testing::Stubs;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLarge = 24 * kMiB;
constexpr int kClients = 16;
constexpr absl::Duration kTimeout = absl::Seconds(60);

// Passes the bytes of connections on to a server, but at most `budget` bytes of each client.
class StallingRelay {
 public:
  StallingRelay(int server_port, int64_t budget) : server_port_(server_port), budget_(budget) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_.get(), kClients), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~StallingRelay() {
    stop_ = true;
    thread_.join();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // The number of clients whose budget is used up, or whose connection the server has closed.
  int stalled() const { return stalled_; }

 private:
  struct Pair {
    UniqueFd client, server;
    int64_t left = 0;
    bool counted = false;
  };
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static bool SendAll(int fd, const char* bytes, ssize_t count) {
    while (count > 0) {
      const ssize_t sent = send(fd, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes += sent;
      count -= sent;
    }
    return true;
  }
  void Run() {
    std::vector<Pair> pairs;
    std::vector<char> bytes(size_t{64} << 10);
    while (!stop_) {
      std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        polled.push_back({pair.left > 0 ? pair.client.get() : -1, POLLIN, 0});
        polled.push_back({pair.server.get(), POLLIN, 0});
      }
      poll(polled.data(), polled.size(), 10);
      for (size_t i = 0; i < pairs.size(); ++i) {
        Pair& pair = pairs[i];
        if (polled[1 + 2 * i].revents != 0) {
          const ssize_t count = recv(
              pair.client.get(), bytes.data(),
              static_cast<size_t>(std::min<int64_t>(pair.left, static_cast<int64_t>(bytes.size()))),
              0);
          pair.left -= std::max<ssize_t>(count, 0);
          if (count <= 0 || !SendAll(pair.server.get(), bytes.data(), count)) pair.left = 0;
        }
        if (polled[2 + 2 * i].revents != 0) {
          const ssize_t count = recv(pair.server.get(), bytes.data(), bytes.size(), 0);
          if (count <= 0 || !SendAll(pair.client.get(), bytes.data(), count)) {
            pair.left = 0;
            pair.client = UniqueFd();
            pair.server = UniqueFd();
          }
        }
        if (pair.left == 0 && !std::exchange(pair.counted, true)) ++stalled_;
      }
      if (polled[0].revents == 0) continue;
      Pair pair;
      pair.client = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      pair.server = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = Loopback(server_port_);
      if (connect(pair.server.get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)) != 0) {
        continue;
      }
      pair.left = budget_;
      pairs.push_back(std::move(pair));
    }
  }

  const int server_port_;
  const int64_t budget_;
  int port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> stalled_ = 0;
  std::thread thread_;
};

int64_t DataBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t total = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
  file >> total >> resident >> shared >> text >> library >> data;
  return data * sysconf(_SC_PAGESIZE);
}

v1::PutRequest PutOf(int64_t bytes) {
  v1::PutRequest request;
  request.set_key("key");
  request.set_value(std::string(static_cast<size_t>(bytes), 'x'));
  return request;
}

class StalledRequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_
                    .Start({"--max-message-bytes", absl::StrCat(32 * kMiB), "--max-incoming-bytes",
                            absl::StrCat(64 * kMiB), "--limit",
                            absl::StrCat("max_value_bytes=", 30 * kMiB)})
                    .ok())
        << coordinator_.ErrorText();
    stubs_ = std::make_unique<Stubs>(coordinator_.address());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Put(*stubs_, 1).ok());
    rlimit limit;
    ASSERT_EQ(prlimit(coordinator_.pid(), RLIMIT_DATA, nullptr, &limit), 0);
    limit.rlim_cur = static_cast<rlim_t>(DataBytes(coordinator_.pid()) + 256 * kMiB);
    ASSERT_EQ(prlimit(coordinator_.pid(), RLIMIT_DATA, &limit, nullptr), 0);
  }
  static grpc::Status Put(Stubs& stubs, int64_t bytes) {
    v1::PutResponse response;
    return stubs.store->Put(testing::Context(kTimeout).get(), PutOf(bytes), &response);
  }
  int64_t HeldFor(const std::string& kind) {
    v1::ServerStatsResponse response;
    const grpc::Status status =
        stubs_->admin->ServerStats(testing::Context().get(), v1::ServerStatsRequest(), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    for (const auto& use : response.memory()) {
      if (use.kind() == kind) return use.bytes();
    }
    return 0;
  }
  bool Await(const std::function<bool()>& condition) {
    const Instant deadline = Clock::Steady().Now() + kTimeout;
    while (!condition()) {
      if (Clock::Steady().Now() > deadline) return false;
      poll(nullptr, 0, 5);
    }
    return true;
  }

  LimitedCoordinator coordinator_;
  std::unique_ptr<Stubs> stubs_;
};

TEST_F(StalledRequestsTest, ByGrpc) {
  {
    StallingRelay relay(coordinator_.port(), kLarge - kMiB);
    std::vector<std::unique_ptr<Stubs>> stalled;
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::thread> threads;
    std::vector<grpc::Status> ends(kClients);
    for (int i = 0; i < kClients; ++i) {
      stalled.push_back(std::make_unique<Stubs>(relay.address(), i + 1));
      contexts.push_back(testing::Context(kTimeout));
      threads.emplace_back([&, i] {
        v1::PutResponse response;
        ends[i] = stalled[i]->store->Put(contexts[i].get(), PutOf(kLarge), &response);
      });
    }
    EXPECT_TRUE(Await([&] { return relay.stalled() >= kClients; }));
    // Two of the requests fit. The coordinator may still read what the relay has passed on.
    EXPECT_TRUE(Await([&] { return HeldFor("requests") > 40 * kMiB; })) << HeldFor("requests");
    EXPECT_LE(HeldFor("requests"), 48 * kMiB);
    // Other clients are served.
    const grpc::Status small = Put(*stubs_, 1000);
    EXPECT_TRUE(small.ok()) << small.error_message();
    for (const auto& context : contexts) context->TryCancel();
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_THAT(coordinator_.ErrorText(), HasSubstr("max_incoming_bytes_per_peer (50331648)"));
  // The bytes of closed connections do not count.
  EXPECT_TRUE(Await([&] { return HeldFor("requests") == 0; })) << HeldFor("requests");
  Stubs fresh(coordinator_.address(), kClients + 1);
  const grpc::Status large = Put(fresh, kLarge);
  EXPECT_TRUE(large.ok()) << large.error_message();
  EXPECT_EQ(coordinator_.Terminate(absl::Seconds(20)).value_or(-1), 0);
}

TEST_F(StalledRequestsTest, ByFrames) {
  constexpr char kPut[] = "cohort.v1.StoreService/Put";
  std::vector<std::unique_ptr<framed_rpc::TestClient>> clients;
  int refused = 0;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<framed_rpc::TestClient>(coordinator_.address()));
    framed_rpc::TestClient& client = *clients.back();
    client.Greet();
    const std::string frame =
        client.Frame(framed_rpc::Kind::kCall, 1, kPut, PutOf(kLarge).SerializeAsString());
    client.Send(absl::string_view(frame).substr(0, kLarge - kMiB));
    // The coordinator has read each request before the next one comes: it has charged or refused
    // it.
    const int64_t goal = (i + 1) * (kLarge - kMiB);
    ASSERT_TRUE(Await([&] { return HeldFor("requests") >= goal || client.HasInput(); }));
    if (!client.HasInput()) continue;
    const auto reply = client.Next();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->code(), absl::StatusCode::kResourceExhausted) << reply->text();
    EXPECT_THAT(reply->text(), HasSubstr("max_incoming_bytes_per_peer (50331648)"));
    EXPECT_THAT(reply->text(), HasSubstr(absl::StrCat(kPut, ": no room for a request")));
    ++refused;
  }
  EXPECT_GE(refused, 2);
  const grpc::Status small = Put(*stubs_, 1000);
  EXPECT_TRUE(small.ok()) << small.error_message();
  clients.clear();
  EXPECT_TRUE(Await([&] { return HeldFor("requests") == 0; })) << HeldFor("requests");
}

}  // namespace
}  // namespace cohort
