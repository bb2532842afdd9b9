// A coordinator listens on exactly the given address, or does not start and says why.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using ::testing::AnyOf;
using testing::ChildProcess;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kTimeout;
using ::testing::UnorderedElementsAre;

// As /proc/net/tcp writes them: 32-bit words of network order, printed in the order of the machine.
constexpr char kLoopback4[] = "0100007F";
constexpr char kLoopback6[] = "00000000000000000000000001000000";
constexpr char kAny4[] = "00000000";
constexpr char kAny6[] = "00000000000000000000000000000000";
constexpr char kListening[] = "0A";
constexpr char kMapped[] = "0000000000000000FFFF0000";

struct Listener {
  std::string address;
  int port = 0;
  friend bool operator<(const Listener& a, const Listener& b) {
    return std::tie(a.address, a.port) < std::tie(b.address, b.port);
  }
  friend bool operator==(const Listener& a, const Listener& b) {
    return a.address == b.address && a.port == b.port;
  }
  friend void PrintTo(const Listener& listener, std::ostream* out) {
    *out << listener.address << ":" << listener.port;
  }
};

std::set<std::string> SocketInodes(pid_t pid) {
  std::set<std::string> inodes;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"))) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (absl::StartsWith(target, "socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// All TCP sockets that the process listens on.
std::vector<Listener> Listeners(pid_t pid) {
  const std::set<std::string> inodes = SocketInodes(pid);
  std::set<Listener> found;
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/net/", table));
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      if (state != kListening || inodes.count(inode) == 0) continue;
      const size_t colon = local.find(':');
      // gRPC binds IPv4 addresses through sockets of IPv6, to their mapped form: the same set of
      // peers.
      found.insert({std::string(absl::StripPrefix(local.substr(0, colon), kMapped)),
                    std::stoi(local.substr(colon + 1), nullptr, 16)});
    }
  }
  return {found.begin(), found.end()};
}

// A coordinator on `listen`, which may be refused.
struct Started {
  explicit Started(const std::vector<std::string>& listen, bool insecure = false)
      : port_file(testing::NewFolder() + "/port") {
    std::vector<std::string> command = {"coordinator/cohort-coordinator", "--metrics-listen", "",
                                        "--port-file", port_file};
    for (const std::string& address : listen) {
      command.push_back("--listen");
      command.push_back(address);
    }
    if (insecure) command.push_back("--insecure");
    process = std::make_unique<ChildProcess>(std::move(command));
  }

  // The ports that it has written; empty if it ended instead.
  std::vector<int> AwaitPorts() {
    std::vector<int> ports;
    testing::Eventually([&] {
      if (process->Wait(absl::ZeroDuration()).ok()) return true;
      ports.clear();
      std::ifstream file(port_file);
      std::string line;
      int port = 0;
      while (std::getline(file, line)) {
        if (absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port)) ports.push_back(port);
      }
      return !ports.empty();
    });
    return ports;
  }

  std::string port_file;
  std::unique_ptr<ChildProcess> process;
};

// A socket that takes a port; -1 if the machine has no such address.
int TakePort(int family, int* port) {
  const int taken = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr* const address =
      family == AF_INET6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = family == AF_INET6 ? sizeof(six) : sizeof(four);
  if (taken < 0 || bind(taken, address, size) != 0 || listen(taken, 1) != 0) {
    close(taken);
    return -1;
  }
  getsockname(taken, address, &size);
  *port = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
  return taken;
}

bool HasIpv6() {
  int port = 0;
  const int taken = TakePort(AF_INET6, &port);
  if (taken < 0) return false;
  close(taken);
  return true;
}

TEST(BindTest, Ipv4LoopbackOnly) {
  Started started({"127.0.0.1:0"});
  const std::vector<int> ports = started.AwaitPorts();
  ASSERT_EQ(ports.size(), 1) << started.process->ErrorText();
  EXPECT_THAT(Listeners(started.process->pid()), ElementsAre(Listener{kLoopback4, ports[0]}));
}

TEST(BindTest, Ipv6LoopbackOnly) {
  if (!HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  Started started({"[::1]:0"});
  const std::vector<int> ports = started.AwaitPorts();
  ASSERT_EQ(ports.size(), 1) << started.process->ErrorText();
  EXPECT_THAT(Listeners(started.process->pid()), ElementsAre(Listener{kLoopback6, ports[0]}));

  // Clients reach the coordinator there.
  testing::Members members =
      testing::JoinAll({testing::Connect(absl::StrCat("[::1]:", ports[0]))}, "group", 2);
  ASSERT_NE(members[0], nullptr);
  EXPECT_TRUE(members[0]->Stats().ok());
}

TEST(BindTest, SeveralAddressesAndNoOther) {
  if (!HasIpv6()) GTEST_SKIP() << "no IPv6 here";
  Started started({"127.0.0.1:0", "[::1]:0"});
  std::vector<int> ports;
  ASSERT_TRUE(testing::Eventually([&] {
    ports = started.AwaitPorts();
    return ports.size() != 1;
  }));
  ASSERT_EQ(ports.size(), 2) << started.process->ErrorText();
  EXPECT_THAT(Listeners(started.process->pid()),
              UnorderedElementsAre(Listener{kLoopback4, ports[0]}, Listener{kLoopback6, ports[1]}));
}

TEST(BindTest, ATakenPortIsAnError) {
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !HasIpv6()) continue;
    int port = 0;
    const int taken = TakePort(family, &port);
    ASSERT_GE(taken, 0);
    const std::string address = absl::StrCat(family == AF_INET ? "127.0.0.1:" : "[::1]:", port);
    Started started({address});
    const absl::StatusOr<int> code = started.process->Wait(kTimeout);
    ASSERT_TRUE(code.ok()) << "it runs on a port that another one has";
    EXPECT_NE(*code, 0);
    EXPECT_LT(*code, 128) << "ended by a signal: " << started.process->ErrorText();
    EXPECT_THAT(started.process->ErrorText(), HasSubstr(address));
    EXPECT_FALSE(std::filesystem::exists(started.port_file));
    close(taken);
  }
}

TEST(BindTest, ASecondCoordinatorOnTheSamePortIsAnError) {
  Started first({"127.0.0.1:0"});
  const std::vector<int> ports = first.AwaitPorts();
  ASSERT_EQ(ports.size(), 1);
  Started second({absl::StrCat("127.0.0.1:", ports[0])});
  const absl::StatusOr<int> code = second.process->Wait(kTimeout);
  ASSERT_TRUE(code.ok()) << "two share a port";
  EXPECT_NE(*code, 0);
  EXPECT_THAT(second.process->ErrorText(), HasSubstr(absl::StrCat(ports[0])));
}

TEST(BindTest, WithoutLeaveOnlyThisMachineIsServed) {
  for (const char* const address : {"0.0.0.0:0", "[::]:0"}) {
    Started started({address});
    const absl::StatusOr<int> code = started.process->Wait(kTimeout);
    ASSERT_TRUE(code.ok()) << "it serves all networks";
    EXPECT_NE(*code, 0);
    EXPECT_LT(*code, 128);
    EXPECT_THAT(started.process->ErrorText(), HasSubstr("--insecure"));
  }
  Started started({"0.0.0.0:0"}, /*insecure=*/true);
  const std::vector<int> ports = started.AwaitPorts();
  ASSERT_EQ(ports.size(), 1) << started.process->ErrorText();
  // gRPC takes the wildcard of either family for both.
  EXPECT_THAT(Listeners(started.process->pid()),
              ElementsAre(AnyOf(Listener{kAny4, ports[0]}, Listener{kAny6, ports[0]})));
}

TEST(BindTest, AnInvalidAddressIsAnError) {
  for (const char* const address :
       {"127.0.0.1", "127.0.0.1:70000", "[::1", "::1:7700", ":", "a b:1"}) {
    Started started({address});
    const absl::StatusOr<int> code = started.process->Wait(kTimeout);
    ASSERT_TRUE(code.ok()) << address;
    EXPECT_NE(*code, 0) << address;
    EXPECT_LT(*code, 128) << address;
    EXPECT_THAT(started.process->ErrorText(), ::testing::Not(IsEmpty())) << address;
  }
}

}  // namespace
}  // namespace cohort
