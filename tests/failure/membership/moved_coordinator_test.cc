// A coordinator comes back under a new address: its name resolves to it at once, and clients follow
// soon. The test has a network of its own, with names from a file or from a name server.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
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
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/tls/testing/certificates.h"
#include "base/unique_fd.h"
#include "client/rendezvous/store_client.h"
#include "cohort/v1/store.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::CoordinatorProcess;

constexpr int kPort = 7700;
constexpr char kName[] = "coordinator.cohort.test";
constexpr char kServersOwnName[] = "server.cohort.test";
// gRPC asks for a name again after 30 s unless it is told otherwise.
constexpr absl::Duration kSoon = absl::Seconds(20);

bool WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

// A network with only a loopback interface, and names that the test sets. It applies to this thread
// and to those that start after it. The error says why this machine does not allow it.
class OwnNames {
 public:
  static std::string Enter(const std::string& hosts, const std::string& servers) {
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
        mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0 ||
        mount(servers.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0) {
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

enum class Names { kFile, kServer };

class MovedCoordinatorTest : public ::testing::TestWithParam<Names> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(testing::NewFolder());
    const std::string servers = absl::StrCat(*folder_, "/resolv.conf");
    WriteFile(FileOfNames(), "127.0.0.1 localhost\n");
    WriteFile(FileOfServer(), "");
    WriteFile(servers, "nameserver 127.0.0.1\n");
    why_not_ = new std::string(OwnNames::Enter(FileOfNames(), servers));
  }
  void SetUp() override {
    if (!why_not_->empty()) GTEST_SKIP() << *why_not_;
    WriteFile(FileOfNames(), "127.0.0.1 localhost\n");
    if (GetParam() == Names::kServer) {
      ASSERT_TRUE(WriteFile(FileOfServer(), absl::StrCat("127.0.0.1 ", kServersOwnName, "\n")));
      // Answers have a TTL of zero; those of Kubernetes have a short one.
      server_ = std::make_unique<testing::ChildProcess>(std::vector<std::string>{
          "/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
          "--no-hosts", absl::StrCat("--addn-hosts=", FileOfServer()), "--local-ttl=0",
          "--local=/test/", "--listen-address=127.0.0.1", "--bind-interfaces", "--user=root",
          "--pid-file="});
      // A SIGHUP ends a server that has not started yet, so one comes only after its first answer.
      ASSERT_TRUE(testing::Eventually([] { return AddressOf(kServersOwnName) == "127.0.0.1"; }))
          << server_->ErrorText();
    }
    Start(2);
  }

  // Starts a coordinator at 127.0.0.HOST, to which the name resolves from now on.
  void Start(int host, const std::vector<std::string>& more_flags = {}) {
    const std::string address = absl::StrCat("127.0.0.", host);
    std::vector<std::string> flags = {"--listen", absl::StrCat(address, ":", kPort)};
    flags.insert(flags.end(), more_flags.begin(), more_flags.end());
    coordinator_ = nullptr;
    coordinator_ = std::make_unique<CoordinatorProcess>(
        CoordinatorProcess::Options{"coordinator/cohort-coordinator", kPort, flags});
    ASSERT_TRUE(coordinator_->Start().ok());
    const std::string line = absl::StrCat(address, " ", kName, "\n");
    if (GetParam() == Names::kFile) {
      ASSERT_TRUE(WriteFile(FileOfNames(), absl::StrCat("127.0.0.1 localhost\n", line)));
    } else {
      ASSERT_TRUE(WriteFile(FileOfServer(), line));
    }
    ASSERT_TRUE(testing::Eventually([&] {
      if (server_ != nullptr) server_->Signal(SIGHUP);  // it reads the file again
      return AddressOf(kName) == address;
    })) << (server_ == nullptr ? "" : server_->ErrorText());
  }
  static std::string Target() { return absl::StrCat(kName, ":", kPort); }

  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::unique_ptr<testing::ChildProcess> server_;

 private:
  static std::string FileOfNames() { return absl::StrCat(*folder_, "/hosts"); }
  static std::string FileOfServer() { return absl::StrCat(*folder_, "/names"); }
  static std::string AddressOf(const char* name) {
    addrinfo wanted = {};
    wanted.ai_family = AF_INET;
    addrinfo* found = nullptr;
    if (getaddrinfo(name, nullptr, &wanted, &found) != 0) return "";
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr, text,
              sizeof(text));
    freeaddrinfo(found);
    return text;
  }

  static std::string* folder_;
  static std::string* why_not_;
};

std::string* MovedCoordinatorTest::folder_ = nullptr;
std::string* MovedCoordinatorTest::why_not_ = nullptr;

INSTANTIATE_TEST_SUITE_P(Names, MovedCoordinatorTest,
                         ::testing::Values(Names::kFile, Names::kServer), [](const auto& info) {
                           return info.param == Names::kFile ? "File" : "Server";
                         });

// The arguments that deploy/README.md tells users of stubs to set.
TEST_P(MovedCoordinatorTest, AStubWithTheDocumentedArgumentsFollows) {
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

// Runs the lines of deploy/README.md themselves, with mutual TLS.
TEST_P(MovedCoordinatorTest, TheDocumentedPythonChannelFollows) {
  const testing::CertificateAuthority ca(testing::NewFolder());
  const auto server = ca.Sign("server", {"server", absl::StrCat("DNS:", kName)});
  const auto client = ca.Sign("client", {"client", "URI:spiffe://test/client"});
  const std::vector<std::string> tls = {"--tls-certificate", server.certificate, "--tls-key",
                                        server.key,          "--tls-client-ca",  server.ca};
  ASSERT_NO_FATAL_FAILURE(Start(2, tls));
  v1::PutRequest request;
  request.set_key("key");
  testing::ChildProcess python(
      {"/usr/bin/python3", testing::ProgramPath("tests/failure/membership/follow_coordinator.py"),
       testing::ProgramPath("deploy/README.md"), Target(), "/cohort.v1.StoreService/Put",
       absl::BytesToHexString(request.SerializeAsString()), client.ca, client.key,
       client.certificate});
  const absl::StatusOr<std::string> called = python.ReadLine(testing::kTimeout);
  ASSERT_TRUE(called.ok()) << called.status() << python.ErrorText();
  ASSERT_NO_FATAL_FAILURE(Start(3, tls));
  python.WriteLine("moved");
  const absl::StatusOr<std::string> seconds = python.ReadLine(testing::kTimeout);
  ASSERT_TRUE(seconds.ok()) << seconds.status() << python.ErrorText();
  std::cout << "Python followed after " << *seconds << " s" << std::endl;
}

TEST_P(MovedCoordinatorTest, OurOwnClientFollows) {
  client::ConnectionOptions options;
  options.address = Target();
  const std::shared_ptr<client::Connection> connection =
      client::Connection::Create(options).value();
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
