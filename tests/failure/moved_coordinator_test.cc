// A coordinator that comes back under a new address: its name leads there at once, and clients follow
// soon. In a network and a file of names of the test's own.
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "client/rendezvous/store_client.h"
#include "cohort/v1/store.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/failure/members.h"
#include "tests/failure/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::CoordinatorProcess;

constexpr int kPort = 7700;
constexpr char kName[] = "coordinator.cohort.test";
// gRPC asks for a name again after 30 s unless it is told otherwise.
constexpr absl::Duration kSoon = absl::Seconds(20);

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

// A network with nothing but a loopback, and names that the test sets. For this thread and what
// begins after it. The error says what this machine does not allow.
class OwnNames {
 public:
  static std::string Enter(const std::string& hosts) {
    const int user = getuid();
    const int group = getgid();
    if (unshare((user == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNET | CLONE_NEWNS) != 0) {
      return absl::StrCat("no namespaces here, neither by being root nor by a user namespace: ",
                          strerror(errno));
    }
    if (user != 0 && !(WriteFile("/proc/self/setgroups", "deny") &&
                       WriteFile("/proc/self/uid_map", absl::StrCat("0 ", user, " 1")) &&
                       WriteFile("/proc/self/gid_map", absl::StrCat("0 ", group, " 1")))) {
      return "a user namespace cannot be filled here";
    }
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) {
      return absl::StrCat("no mounts here: ", strerror(errno));
    }
    const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq loopback = {};
    std::strncpy(loopback.ifr_name, "lo", IFNAMSIZ - 1);
    loopback.ifr_flags = IFF_UP;
    if (ioctl(fd.get(), SIOCSIFFLAGS, &loopback) != 0) {
      return absl::StrCat("no loopback: ", strerror(errno));
    }
    return "";
  }
};

class MovedCoordinatorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    hosts_ = new std::string(absl::StrCat(testing::NewFolder(), "/hosts"));
    WriteFile(*hosts_, "127.0.0.1 localhost\n");
    why_not_ = new std::string(OwnNames::Enter(*hosts_));
  }
  void SetUp() override {
    if (!why_not_->empty()) GTEST_SKIP() << *why_not_;
    Start(2);
  }

  // A coordinator at 127.0.0.HOST, where the name leads from now on.
  void Start(int host) {
    const std::string address = absl::StrCat("127.0.0.", host);
    coordinator_ = nullptr;
    coordinator_ = std::make_unique<CoordinatorProcess>(CoordinatorProcess::Options{
        "coordinator/cohort-coordinator", kPort,
        {"--listen", absl::StrCat(address, ":", kPort)}});
    ASSERT_TRUE(coordinator_->Start().ok());
    ASSERT_TRUE(WriteFile(*hosts_, absl::StrCat("127.0.0.1 localhost\n", address, " ", kName, "\n")));
  }
  static std::string Target() { return absl::StrCat(kName, ":", kPort); }

  static std::string* hosts_;
  static std::string* why_not_;
  std::unique_ptr<CoordinatorProcess> coordinator_;
};

std::string* MovedCoordinatorTest::hosts_ = nullptr;
std::string* MovedCoordinatorTest::why_not_ = nullptr;

// What deploy/README.md tells users of stubs to set.
TEST_F(MovedCoordinatorTest, AStubWithTheDocumentedArgumentsFollows) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto stub = v1::StoreService::NewStub(
      grpc::CreateCustomChannel(Target(), grpc::InsecureChannelCredentials(), arguments));
  const auto put = [&](absl::Duration timeout) {
    v1::PutRequest request;
    request.set_key("key");
    v1::PutResponse response;
    const auto context = testing::Context(timeout);
    context->set_wait_for_ready(true);
    return stub->Put(context.get(), request, &response);
  };
  ASSERT_TRUE(put(kSoon).ok());
  ASSERT_NO_FATAL_FAILURE(Start(3));
  const Instant moved = Clock::Steady().Now();
  // The call that finds the old connection broken fails; users repeat it.
  grpc::Status status = put(kSoon);
  while (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         Clock::Steady().Now() - moved < kSoon) {
    status = put(kSoon - (Clock::Steady().Now() - moved));
  }
  std::cout << "a stub followed after " << Clock::Steady().Now() - moved << std::endl;
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(MovedCoordinatorTest, OurOwnClientFollows) {
  client::ConnectionOptions options;
  options.address = Target();
  const std::shared_ptr<client::Connection> connection = client::Connection::Create(options).value();
  const auto store = client::StoreClient::Create(connection, "");
  ASSERT_TRUE(store->Put("key", "value").ok());
  ASSERT_NO_FATAL_FAILURE(Start(3));
  const Instant moved = Clock::Steady().Now();
  const auto result = store->Put("key", "value");
  std::cout << "a client followed after " << Clock::Steady().Now() - moved << std::endl;
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_LT(Clock::Steady().Now() - moved, kSoon);
}

}  // namespace
}  // namespace cohort
