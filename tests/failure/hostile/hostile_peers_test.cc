// The guarantee as a test: whatever peers without rights and one tenant send, keep or withhold, the
// others are served, the daemons keep their memory within bounds and give it back, and nothing is
// lost.
//
// All kinds of hostile_peers.py run at once, beside three honest tenants. The test prints the
// latencies of each kind of call before, during and after the attack. $COHORT_HOSTILE_TIME is the
// length of the attack (10s); with $COHORT_HOSTILE_MAX_DELAY, such as 100ms, the test fails if the
// p99 of a call is longer by more than that: for an optimised build on a machine with nothing else
// to do. $COHORT_HOSTILE_KINDS, as "handshakes,pings", leaves the other kinds out.
// $COHORT_COORDINATOR_CGROUP and $COHORT_WORKER_CGROUP are folders of cgroups, with their
// limits of memory, which the daemons enter.
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/tensor/tensor.h"
#include "base/tls/testing/certificates.h"
#include "client/collective/remote/remote_group.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"
#include "gtest/gtest.h"
#include "tests/failure/hostile/honest_load.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Each daemon stays below the memory of a container of 512 MiB, whose limits it has.
constexpr int64_t kMostBytes = 480 * kMiB;
constexpr int64_t kTenantQuota = 64 * kMiB;
// A daemon may keep so much more after the attack.
constexpr int64_t kMostBytesAfter = 64 * kMiB;
constexpr int kKeys = 200;

absl::Duration DurationOf(const char* variable, absl::Duration usual) {
  const char* const text = std::getenv(variable);
  absl::Duration value = usual;
  if (text != nullptr) {
    EXPECT_TRUE(absl::ParseDuration(text, &value)) << variable << ": " << text;
  }
  return value;
}

// A daemon with TLS and an access policy. It listens on ports of its own choice.
class Daemon {
 public:
  Daemon(const std::string& program, const char* cgroup_variable, std::vector<std::string> flags,
         size_t addresses) {
    const std::string port_file = absl::StrCat(NewFolder(), "/ports");
    const char* const cgroup = std::getenv(cgroup_variable);
    // As LimitKeptMemory (base/daemon/heap_trim.h) does in a container of 512 MiB.
    const std::string enter = cgroup == nullptr
                                  ? "export MALLOC_TRIM_THRESHOLD_=1048576; "
                                  : absl::StrCat("echo $$ > ", cgroup, "/cgroup.procs; ");
    std::vector<std::string> command = {
        "/bin/sh",     "-c",     absl::StrCat(enter, "exec \"$0\" \"$@\""), ProgramPath(program),
        "--port-file", port_file};
    command.insert(command.end(), flags.begin(), flags.end());
    process_ = std::make_unique<ChildProcess>(std::move(command));
    EXPECT_TRUE(Eventually([&] {
      ports_.clear();
      std::ifstream file(port_file);
      for (std::string line; std::getline(file, line);) {
        int port = 0;
        if (absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port)) ports_.push_back(port);
      }
      return ports_.size() == addresses;
    })) << process_->ErrorText();
  }

  int port(size_t index = 0) const { return ports_[index]; }
  std::string address() const { return absl::StrCat("127.0.0.1:", ports_[0]); }
  int64_t ResidentBytes() const { return testing::ResidentBytes(process_->pid()); }
  absl::Duration ProcessorTime() const {
    clockid_t clock = 0;
    timespec time = {};
    EXPECT_EQ(clock_getcpuclockid(process_->pid(), &clock), 0);
    EXPECT_EQ(clock_gettime(clock, &time), 0);
    return absl::DurationFromTimespec(time);
  }
  bool runs() { return !process_->Wait(absl::ZeroDuration()).ok(); }
  std::string ErrorText() const { return process_->ErrorText(); }
  int End() {
    process_->Signal(SIGTERM);
    return process_->Wait(absl::Seconds(30)).value_or(-1);
  }

 private:
  std::unique_ptr<ChildProcess> process_;
  std::vector<int> ports_;
};

class HostilePeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> rules;
    for (const std::string name : {"a", "b", "c", "member"}) {
      rules.push_back(absl::StrCat(R"({"identity": "spiffe://test/)", name, R"(", "tenant": ")",
                                   name == "member" ? "m" : name, R"(", "role": "member"})"));
    }
    rules.push_back(R"({"identity": "spiffe://test/worker", "tenant": "*", "role": "member"})");
    coordinator_ = std::make_unique<Daemon>(
        "coordinator/cohort-coordinator", "COHORT_COORDINATOR_CGROUP",
        Flags("coordinator", {"--listen", "127.0.0.1:0,rpc", "--listen", "127.0.0.1:0,tcpstore",
                              "--listen", "127.0.0.1:0,tcpstore", "--limit",
                              absl::StrCat("max_tenant_bytes_held=", kTenantQuota), "--limit",
                              absl::StrCat("max_bytes_held=", 256 * kMiB), "--max-incoming-bytes",
                              absl::StrCat(64 * kMiB)}),
        3);
    // TCPStore's two ports are two tenants: one is attacked.
    for (const size_t index : {1, 2}) {
      rules.push_back(absl::StrCat(R"({"identity": "anonymous", "tenant": "tcpstore-)",
                                   coordinator_->port(index), R"(", "role": "member"})"));
    }
    WritePolicy(rules);
    // The coordinator looks at the file once a second.
    Become("a");
    const auto store =
        client::StoreClient::Create(*client::Connection::Create(Options("a", false)), "");
    ASSERT_TRUE(Eventually([&] { return store->Get({"key"}).ok(); }));
    Become("worker");
    worker_ =
        std::make_unique<Daemon>("worker/daemon/cohort-worker", "COHORT_WORKER_CGROUP",
                                 Flags("worker", {"--listen", "127.0.0.1:0", "--coordinator",
                                                  coordinator_->address(), "--metrics-listen="}),
                                 1);
  }
  void TearDown() override {
    for (const char* const name : {"COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY", "COHORT_TLS_CA"})
      unsetenv(name);
  }

  void WritePolicy(const std::vector<std::string>& rules) const {
    std::ofstream(policy_ + ".next")
        << absl::StrCat(R"({"rules": [)", absl::StrJoin(rules, ",\n"), "]}");
    ASSERT_EQ(rename((policy_ + ".next").c_str(), policy_.c_str()), 0);
  }
  std::vector<std::string> Flags(const std::string& server, std::vector<std::string> flags) const {
    if (!std::ifstream(policy_).good()) WritePolicy({});
    const TlsFiles files = ca_.Sign(server + "-server", {server, "DNS:localhost,IP:127.0.0.1"});
    for (const std::string& flag : std::vector<std::string>{
             "--tls-certificate", files.certificate, "--tls-key", files.key, "--tls-client-ca",
             files.ca, "--tls-client-certificate-optional", "--access-policy", policy_}) {
      flags.push_back(flag);
    }
    return flags;
  }
  TlsFiles Sign(const std::string& name) const {
    return ca_.Sign(name, {name, "URI:spiffe://test/" + name});
  }
  // Connections made from now on are of spiffe://test/NAME.
  void Become(const std::string& name) const {
    const TlsFiles files = Sign(name);
    setenv("COHORT_TLS_CERTIFICATE", files.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
    setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
  }
  client::ConnectionOptions Options(const std::string& tenant, bool framed_rpc) const {
    client::ConnectionOptions options;
    options.address = coordinator_->address();
    options.tenant = tenant;
    options.framed_rpc = framed_rpc;
    return options;
  }

  void AddTenant(const std::string& tenant) {
    Become(tenant);
    const std::shared_ptr<client::Connection> framed =
        *client::Connection::Create(Options(tenant, true));
    const std::shared_ptr<client::Connection> grpc =
        *client::Connection::Create(Options(tenant, false));
    const auto members = std::make_shared<Members>(JoinAll({framed}, "group", 1));
    ASSERT_NE(members->front(), nullptr);
    load_.Add(tenant + " barrier", [members] { return members->front()->Barrier(); });
    const std::shared_ptr<client::StoreClient> store = client::StoreClient::Create(grpc, "");
    stores_.push_back(store);
    load_.Add(tenant + " put and get by gRPC", [store, number = 0]() mutable {
      const std::string key = absl::StrCat("key", ++number % kKeys);
      const auto put = store->Put(key, std::string(1024, static_cast<char>('a' + number % 26)));
      return put.ok() ? store->Get({key}).status() : put.status();
    });
    client::WorkerSessionOptions session;
    session.address = worker_->address();
    session.attach = false;
    client::RemoteGroupOptions options;
    const auto connected = client::WorkerSession::Connect(session);
    ASSERT_TRUE(connected.ok()) << connected.status();
    options.session = *connected;
    options.group = "tensors";
    options.tenant = tenant;
    options.rank = 0;
    options.world_size = 1;
    absl::StatusOr<std::unique_ptr<client::RemoteGroup>> group =
        client::RemoteGroup::Create(options);
    ASSERT_TRUE(group.ok()) << group.status();
    const std::shared_ptr<client::RemoteGroup> tensors = *std::move(group);
    load_.Add(tenant + " all_reduce by a worker", [tensors] {
      const Tensor tensor = Tensor::Zeros(DataType::kF32, {16 << 10});
      return tensors->AllReduce(tensor, tensor, {ReduceOp::kSum});
    });
  }
  // New connections, with a handshake each.
  void AddConnections(const std::string& tenant) {
    Become(tenant);
    load_.Add(
        "connect",
        [options = Options(tenant, false)] {
          const auto connection = client::Connection::Create(options);
          if (!connection.ok()) return connection.status();
          return client::StoreClient::Create(*connection, "")->Get({"key"}).status();
        },
        absl::Milliseconds(50));
  }
  void AddTcpStore() {
    const auto client = std::make_shared<coordinator::tcpstore::TestClient>(
        coordinator_->port(2),
        coordinator::tcpstore::Hello() +
            coordinator::tcpstore::RequestBytes(1, {coordinator::tcpstore::TextBytes("key"),
                                                    coordinator::tcpstore::TextBytes("value")}));
    load_.Add("TCPStore", [client] {
      const std::string value = coordinator::tcpstore::TextBytes("value");
      const std::string get =
          coordinator::tcpstore::RequestBytes(3, {coordinator::tcpstore::TextBytes("key")});
      return client->Ask(get, value.size()) == value ? absl::OkStatus()
                                                     : absl::InternalError("another answer");
    });
  }

  std::vector<std::unique_ptr<ChildProcess>> Attack() const {
    Sign("stranger");
    Sign("member");
    const std::string script = ProgramPath("tests/failure/hostile/hostile_peers.py");
    ChildProcess list({"/usr/bin/env", "python3", script, "--list"});
    std::vector<std::string> kinds;
    for (auto line = list.ReadLine(kTimeout); line.ok(); line = list.ReadLine(kTimeout))
      kinds.push_back(*line);
    EXPECT_GE(kinds.size(), 20u);
    if (const char* const only = std::getenv("COHORT_HOSTILE_KINDS"); only != nullptr)
      kinds = absl::StrSplit(only, ',');
    const std::string facts = absl::StrCat(
        R"({"coordinator": )", coordinator_->port(0), R"(, "tcpstore": )", coordinator_->port(1),
        R"(, "metrics": )", metrics_port(), R"(, "worker": )", worker_->port(), R"(, "ca": ")",
        absl::StripSuffix(ca_.path(), ".crt"), R"(", "stranger": ")", folder_,
        R"(/stranger", "member": ")", folder_, R"(/member"})");
    std::vector<std::unique_ptr<ChildProcess>> attackers;
    for (const std::string& kind : kinds) {
      attackers.push_back(std::make_unique<ChildProcess>(
          std::vector<std::string>{"/usr/bin/env", "python3", script, kind, facts}));
    }
    return attackers;
  }
  int metrics_port() const {
    const std::string text = coordinator_->ErrorText();
    const size_t at = text.find("metrics_port=");
    int port = 0;
    if (at == std::string::npos) return 0;
    const std::string rest = text.substr(at + 13);
    return absl::SimpleAtoi(rest.substr(0, rest.find_first_not_of("0123456789")), &port) ? port : 0;
  }
  static void Wait(absl::Duration time) {
    const Instant end = Clock::Steady().Now() + time;
    while (Clock::Steady().Now() < end) poll(nullptr, 0, 10);
  }

  const std::string folder_ = NewFolder();
  const std::string policy_ = folder_ + "/policy.json";
  const CertificateAuthority ca_{folder_};
  std::unique_ptr<Daemon> coordinator_;
  std::unique_ptr<Daemon> worker_;
  std::vector<std::shared_ptr<client::StoreClient>> stores_;
  HonestLoad load_;
};

TEST_F(HostilePeersTest, OthersAreServedWithinTheirTimeAndMemoryComesBack) {
  const absl::Duration time = DurationOf("COHORT_HOSTILE_TIME", absl::Seconds(10));
  const absl::Duration most_delay =
      DurationOf("COHORT_HOSTILE_MAX_DELAY", absl::InfiniteDuration());
  for (const std::string tenant : {"a", "b", "c"}) AddTenant(tenant);
  AddConnections("a");
  AddTcpStore();
  Wait(time / 5);
  load_.Take();
  const auto processor_time = [&] {
    return coordinator_->ProcessorTime() + worker_->ProcessorTime();
  };
  const absl::Duration at_first = processor_time();
  Wait(time / 5);
  const auto quiet = load_.Take();
  const absl::Duration before_attack = processor_time();
  const int64_t coordinator_before = coordinator_->ResidentBytes();
  const int64_t worker_before = worker_->ResidentBytes();

  std::vector<std::unique_ptr<ChildProcess>> attackers = Attack();
  int64_t coordinator_peak = 0;
  int64_t worker_peak = 0;
  const Instant end = Clock::Steady().Now() + time;
  while (Clock::Steady().Now() < end) {
    coordinator_peak = std::max(coordinator_peak, coordinator_->ResidentBytes());
    worker_peak = std::max(worker_peak, worker_->ResidentBytes());
    Wait(absl::Milliseconds(20));
  }
  const auto attacked = load_.Take();
  const absl::Duration after_attack = processor_time();
  for (const auto& attacker : attackers) {
    EXPECT_FALSE(attacker->Wait(absl::ZeroDuration()).ok())
        << "it ended: " << attacker->ErrorText();
  }
  attackers.clear();

  EXPECT_TRUE(coordinator_->runs()) << coordinator_->ErrorText();
  EXPECT_TRUE(worker_->runs()) << worker_->ErrorText();
  // Nothing of the honest tenants is lost.
  for (const auto& store : stores_) {
    const auto keys = store->Range("key", "", kKeys + 1, /*keys_only=*/true);
    ASSERT_TRUE(keys.ok()) << keys.status();
    EXPECT_GE(keys->values.size(), 1u);
  }
  const auto is_back = [](Daemon& daemon, int64_t before, int64_t more) {
    return Eventually([&] { return daemon.ResidentBytes() <= before + more; });
  };
  // The hostile tenant keeps the values that it wrote, within its quota.
  EXPECT_TRUE(is_back(*coordinator_, coordinator_before, kMostBytesAfter + 2 * kTenantQuota))
      << coordinator_->ResidentBytes() / kMiB << " MiB";
  EXPECT_TRUE(is_back(*worker_, worker_before, kMostBytesAfter))
      << worker_->ResidentBytes() / kMiB << " MiB";
  load_.Take();
  Wait(time / 5);
  const auto after = load_.Take();
  load_.Stop();
  EXPECT_TRUE(load_.errors().empty()) << absl::StrJoin(load_.errors(), "\n");

  std::cout << "coordinator: " << coordinator_before / kMiB << " MiB before, "
            << coordinator_peak / kMiB << " at most, " << coordinator_->ResidentBytes() / kMiB
            << " after; worker: " << worker_before / kMiB << ", " << worker_peak / kMiB << ", "
            << worker_->ResidentBytes() / kMiB
            << "\nprocessors of both: " << absl::FDivDuration(before_attack - at_first, time / 5)
            << " before, " << absl::FDivDuration(after_attack - before_attack, time)
            << " under attack" << std::endl;
  for (const auto& [kind, latencies] : quiet) {
    const Latencies& during = attacked.at(kind);
    std::cout << kind << ": p50 " << latencies.p50 << ", p99 " << latencies.p99 << "; attacked p50 "
              << during.p50 << ", p99 " << during.p99 << ", longest " << during.longest << " of "
              << during.count << "; after p99 " << after.at(kind).p99 << std::endl;
    EXPECT_GT(during.count, 0) << kind;
    EXPECT_LE(during.p99 - latencies.p99, most_delay) << kind;
  }
  EXPECT_LE(coordinator_peak, kMostBytes);
  EXPECT_LE(worker_peak, kMostBytes);
  EXPECT_EQ(coordinator_->End(), 0);
  EXPECT_EQ(worker_->End(), 0);
}

}  // namespace
}  // namespace cohort::testing
