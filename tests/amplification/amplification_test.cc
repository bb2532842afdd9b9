// The amplification table: for each message of each protocol of a daemon, the daemon's memory and
// processor time for each byte that a peer sends, and the delay of another client.
//
//   bazel test //tests/amplification:amplification_test
//   bazel run --config=opt --define system_libraries=shared //tests/amplification:amplification_test
//   -- --write-page "$PWD/docs/amplification.md"
//
// The test holds the bounds in bytes. The page has requests of the usual size, processor time and,
// with the argument --with-delays, the delay of another client: for an idle machine and an
// optimised build. One file: all protocols have the same bounds.
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/v1/attach.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/queue.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/amplification/deployment.h"
#include "tests/amplification/framed_messages.h"
#include "tests/amplification/grpc_messages.h"
#include "tests/amplification/http2_peer.h"
#include "tests/amplification/listening_sockets.h"
#include "tests/amplification/measure.h"
#include "tests/amplification/mesh_messages.h"
#include "tests/amplification/metrics_messages.h"
#include "tests/amplification/packet_messages.h"
#include "tests/amplification/page.h"
#include "tests/amplification/process_usage.h"
#include "tests/amplification/store_messages.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/limited_coordinator.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "torchft/lighthouse.pb.h"

namespace cohort::amplification {
namespace {

// A peer without rights costs a daemon at most this, whatever it sends.
constexpr int64_t kMostBytes = 64 * kMiB;
// A request of a member is parsed: a field of two bytes that its message does not have becomes an
// object. Besides, a daemon holds values of the tenant within its quota.
constexpr int64_t kMostBytesEach = 64;
constexpr int64_t kMostBytesOfACall = kTenantBytes + 16 * kMiB;
// Memory that a daemon keeps after the attacks on it.
constexpr int64_t kMostLeftBytes = 64 * kMiB;
// Together they would send more than kMostBytes.
constexpr int kManyConnections = 100;
constexpr char kQueueService[] = "cohort.v1.QueueService";
constexpr int64_t kQueueRequestBytes = 4096;
// gRPC's own services, whose types this program does not know.
constexpr char kHealth[] = "grpc.health.v1.Health";
constexpr char kReflection[] = "grpc.reflection.v1alpha.ServerReflection";

// Set by --write-page and --with-delays.
std::string page;
bool with_delays = false;
std::vector<Row>& AllRows() {
  static auto* const rows = new std::vector<Row>();
  return *rows;
}

// The page has the largest requests of daemons with the usual limits. The test has smaller ones, so
// that it is short: amplification is for each byte.
size_t RequestBytes() { return size_t{page.empty() ? 1u : 4u} << 20; }

// Files of which this program knows the services.
std::vector<const google::protobuf::FileDescriptor*> KnownFiles() {
  return {v1::JoinRequest::descriptor()->file(),
          v1::SendRequest::descriptor()->file(),
          v1::PutRequest::descriptor()->file(),
          v1::PublishRequest::descriptor()->file(),
          v1::EvictRequest::descriptor()->file(),
          v1::JoinGroupRequest::descriptor()->file(),
          v1::QueueHandle::descriptor()->file(),
          torchft::LighthouseQuorumRequest::descriptor()->file()};
}

class AmplificationTest : public ::testing::Test {
 protected:
  int port() const { return deployment_.coordinator().port(); }
  int worker_port() const { return deployment_.worker().port(); }
  pid_t coordinator_pid() const { return deployment_.coordinator().pid(); }
  pid_t worker_pid() const { return deployment_.worker().pid(); }

  // The bound of a row: kMostBytes, or bytes for each byte that was sent.
  enum class Bound { kFixed, kEach };

  // Attacks, and holds each cell against the bound.
  void Attack(const std::string& protocol, Peer peer, pid_t daemon, std::vector<Message> messages,
              std::function<bool()> innocent_call) {
    AttackWithin(peer == Peer::kMember ? Bound::kEach : Bound::kFixed, protocol, peer, daemon,
                 std::move(messages), std::move(innocent_call));
  }
  void AttackWithin(Bound bound, const std::string& protocol, Peer peer, pid_t daemon,
                    std::vector<Message> messages, std::function<bool()> innocent_call) {
    ASSERT_FALSE(messages.empty()) << protocol;
    const ProcessUsage usage(daemon);
    if (base_bytes_.count(daemon) == 0) {
      usage.AwaitQuiet();
      base_bytes_[daemon] = usage.ResidentBytes();
    }
    for (Row& row : Measure({protocol, peer, daemon, std::move(messages), std::move(innocent_call)},
                            with_delays)) {
      for (const auto& [form, cell] : row.cells) {
        const std::string where = absl::StrCat(protocol, ", ", row.message, ", ", NameOf(form),
                                               ": ", cell.sent_bytes, " bytes were sent");
        if (bound == Bound::kFixed) {
          // All attacks so far count together: the memory that one leaves is a part of the next
          // peak.
          EXPECT_LE(cell.peak_bytes - base_bytes_[daemon], kMostBytes) << where;
        } else {
          EXPECT_LE(cell.grown_bytes, kMostBytesEach * cell.sent_bytes + kMostBytesOfACall)
              << where;
        }
      }
      AllRows().push_back(std::move(row));
    }
  }

  // After the attacks on a daemon: it gives the memory back.
  void ExpectLittleLeft(pid_t daemon, int64_t held) {
    const ProcessUsage usage(daemon);
    const int64_t most = base_bytes_[daemon] + held + kMostLeftBytes;
    EXPECT_TRUE(testing::Eventually([&] { return usage.ResidentBytes() <= most; }))
        << usage.ResidentBytes() - base_bytes_[daemon] << " bytes stay after the attacks";
  }

  // Calls of another client, by gRPC and by framed RPC in turn.
  std::function<bool()> CoordinatorCalls() {
    if (!with_delays) return nullptr;
    const std::string address = deployment_.coordinator_address();
    const auto stubs = std::make_shared<testing::Stubs>(address);
    const auto members =
        std::make_shared<testing::Members>(testing::JoinAll({testing::Connect(address)}, "i", 1));
    const auto calls = std::make_shared<int>(0);
    return [=] {
      if (++*calls % 2 == 0) return members->front()->Barrier().ok();
      v1::LimitsResponse response;
      return stubs->admin->Limits(testing::Context().get(), {}, &response).ok();
    };
  }
  std::function<bool()> WorkerCalls() {
    if (!with_delays) return nullptr;
    const std::shared_ptr<v1::WorkerService::Stub> stub = v1::WorkerService::NewStub(
        grpc::CreateChannel(deployment_.worker_address(), grpc::InsecureChannelCredentials()));
    return [stub] {
      v1::GetWorkerResponse response;
      return stub->GetWorker(testing::Context().get(), {}, &response).ok();
    };
  }

  void AttackByGrpc(Peer peer, int port, pid_t daemon, const std::string& name,
                    const Adjust& adjust, const std::function<bool()>& innocent_call) {
    const std::string token = peer == Peer::kMember ? kMemberToken : "";
    const std::string protocol = absl::StrCat("gRPC of the ", name);
    const Sender sender{port, token, RequestBytes(), adjust};
    for (const std::string& service : ServicesAt(port)) {
      if (service == kReflection) continue;
      const bool is_health = service == kHealth;
      ASSERT_TRUE(FindService(service) != nullptr || is_health)
          << service << " is not among the files that this test knows";
      const std::vector<std::string> methods = {"Check", "Watch"};
      Attack(protocol, peer, daemon,
             GrpcMessages(service, sender, is_health ? methods : std::vector<std::string>()),
             innocent_call);
    }
    // gRPC's own library parses its requests. The service is off unless --reflection is set.
    AttackWithin(Bound::kEach, protocol, peer, daemon,
                 GrpcMessages(kReflection, sender, {"ServerReflectionInfo"}), innocent_call);
  }

  Deployment deployment_{RequestBytes()};
  std::map<pid_t, int64_t> base_bytes_;
};

TEST_F(AmplificationTest, GrpcOfTheCoordinatorWithoutRights) {
  AttackByGrpc(Peer::kWithoutRights, port(), coordinator_pid(), "coordinator", nullptr,
               CoordinatorCalls());
  ExpectLittleLeft(coordinator_pid(), 0);
}
TEST_F(AmplificationTest, GrpcOfTheCoordinatorAsMember) {
  AttackByGrpc(Peer::kMember, port(), coordinator_pid(), "coordinator",
               deployment_.JoinAtCoordinator(), CoordinatorCalls());
  ExpectLittleLeft(coordinator_pid(), kTenantBytes);
}

TEST_F(AmplificationTest, FramesOfTheCoordinatorWithoutRights) {
  Attack("framed RPC of the coordinator", Peer::kWithoutRights, coordinator_pid(),
         FramedMessages({port(), "", RequestBytes(), nullptr}), CoordinatorCalls());
  ExpectLittleLeft(coordinator_pid(), 0);
}
TEST_F(AmplificationTest, FramesOfTheCoordinatorAsMember) {
  Attack("framed RPC of the coordinator", Peer::kMember, coordinator_pid(),
         FramedMessages({port(), kMemberToken, RequestBytes(), deployment_.JoinAtCoordinator()}),
         CoordinatorCalls());
  ExpectLittleLeft(coordinator_pid(), kTenantBytes);
}

TEST_F(AmplificationTest, TcpStore) {
  Attack("TCPStore", Peer::kWithoutRights, coordinator_pid(), StoreMessages(port(), RequestBytes()),
         CoordinatorCalls());
  deployment_.AdmitAnonymousClients();
  Attack("TCPStore", Peer::kMember, coordinator_pid(), StoreMessages(port(), RequestBytes()),
         CoordinatorCalls());
  ExpectLittleLeft(coordinator_pid(), kTenantBytes);
}

TEST_F(AmplificationTest, GrpcOfAWorkerWithoutRights) {
  AttackByGrpc(Peer::kWithoutRights, worker_port(), worker_pid(), "worker", nullptr, WorkerCalls());
  ExpectLittleLeft(worker_pid(), 0);
}
TEST_F(AmplificationTest, GrpcOfAWorkerAsMember) {
  const WorkerSession session = deployment_.OpenSession();
  AttackByGrpc(Peer::kMember, worker_port(), worker_pid(), "worker",
               deployment_.JoinAtWorker(session), WorkerCalls());
}

TEST_F(AmplificationTest, FramesOfAWorker) {
  Attack("framed RPC of the worker", Peer::kWithoutRights, worker_pid(),
         FramedMessages({worker_port(), "", RequestBytes(), nullptr}), WorkerCalls());
  const WorkerSession session = deployment_.OpenSession();
  Attack("framed RPC of the worker", Peer::kMember, worker_pid(),
         FramedMessages(
             {worker_port(), kMemberToken, RequestBytes(), deployment_.JoinAtWorker(session)}),
         WorkerCalls());
  ExpectLittleLeft(worker_pid(), 0);
}

// A peer may have as many connections as it likes, each with a part of a request.
TEST_F(AmplificationTest, ManyConnectionsWithoutRights) {
  const auto attack = [&](const std::string& name, int port, pid_t daemon,
                          const std::function<bool()>& innocent_call) {
    const Sender sender{port, "", RequestBytes(), nullptr, kManyConnections};
    std::vector<Message> messages = GrpcMessages(ServicesAt(port).front(), sender, {"Check"});
    messages.resize(1);
    Attack(absl::StrCat("gRPC of the ", name, ", many connections"), Peer::kWithoutRights, daemon,
           std::move(messages), innocent_call);
    messages = FramedMessages(sender);
    messages.resize(1);
    Attack(absl::StrCat("framed RPC of the ", name, ", many connections"), Peer::kWithoutRights,
           daemon, std::move(messages), innocent_call);
    ExpectLittleLeft(daemon, 0);
  };
  attack("coordinator", port(), coordinator_pid(), CoordinatorCalls());
  attack("worker", worker_port(), worker_pid(), WorkerCalls());
}

TEST_F(AmplificationTest, AttachSocket) {
  const WorkerSession session = deployment_.OpenSession();
  const auto magic = [](google::protobuf::Message* message, const std::string& id) {
    auto* const hello = static_cast<v1::AttachHello*>(message);
    hello->set_magic(v1::ATTACH_PROTOCOL_MAGIC);
    hello->set_version(v1::ATTACH_PROTOCOL_VERSION);
    hello->set_session(id);
  };
  const std::string name = session.opened.attach_socket();
  std::vector<Message> messages =
      PacketMessages(*v1::AttachHello::descriptor(), false,
                     {name, nullptr, [&](auto* message) { magic(message, std::string(16, 'x')); }});
  for (Message& message : PacketMessages(*v1::AttachRequest::descriptor(), true, {name})) {
    messages.push_back(std::move(message));
  }
  Attack("attach socket", Peer::kWithoutRights, worker_pid(), messages, WorkerCalls());
  // Each connection ends its session.
  std::vector<WorkerSession> sessions;
  const auto hello = [&] {
    sessions.push_back(deployment_.OpenSession());
    v1::AttachHello first;
    magic(&first, sessions.back().opened.session());
    return first.SerializeAsString();
  };
  Attack("attach socket", Peer::kMember, worker_pid(),
         PacketMessages(*v1::AttachRequest::descriptor(), true, {name, hello}), WorkerCalls());
  ExpectLittleLeft(worker_pid(), 0);
}

TEST_F(AmplificationTest, Metrics) {
  for (const testing::LimitedCoordinator* const daemon :
       {&deployment_.coordinator(), &deployment_.worker()}) {
    const std::string protocol =
        absl::StrCat("metrics of the ", daemon == &deployment_.worker() ? "worker" : "coordinator");
    const auto calls = daemon == &deployment_.worker() ? WorkerCalls() : CoordinatorCalls();
    Attack(protocol, Peer::kWithoutRights, daemon->pid(),
           MetricsMessages(daemon->metrics_port(), ""), calls);
    Attack(protocol, Peer::kMember, daemon->pid(),
           MetricsMessages(daemon->metrics_port(), kMemberToken), calls);
    ExpectLittleLeft(daemon->pid(), 0);
  }
}

// A process with a queue and a rank, as a training process is.
class TrainingProcess {
 public:
  TrainingProcess() : process_({"tests/amplification/training_process_main"}) {
    EXPECT_TRUE(handle_.ParseFromString(absl::HexStringToBytes(Line("queue "))));
    EXPECT_TRUE(absl::SimpleAtoi(Line("mesh "), &mesh_port_));
  }
  pid_t pid() const { return process_.pid(); }
  int mesh_port() const { return mesh_port_; }
  const v1::QueueHandle& handle() const { return handle_; }
  // The port of the queue's streams.
  int queue_port() const {
    const std::string& address = handle_.addresses(0);
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
    return port;
  }

 private:
  std::string Line(const std::string& begin) {
    const absl::StatusOr<std::string> line = process_.ReadLine(testing::kTimeout);
    EXPECT_TRUE(line.ok() && absl::StartsWith(*line, begin)) << begin << process_.ErrorText();
    return line.ok() ? line->substr(begin.size()) : "";
  }

  testing::ChildProcess process_;
  v1::QueueHandle handle_;
  int mesh_port_ = 0;
};

v1::QueueHello HelloOf(const v1::QueueHandle& handle, Peer peer) {
  v1::QueueHello hello;
  hello.set_version(handle.version());
  hello.set_token(peer == Peer::kMember ? handle.token() : std::string(16, 'x'));
  hello.set_name("reader");
  return hello;
}

TEST_F(AmplificationTest, Queue) {
  TrainingProcess process;
  const v1::QueueHandle& handle = process.handle();
  const std::function<bool()> join_as_reader = [&] {
    v1::ReadQueueRequest request;
    *request.mutable_hello() = HelloOf(handle, Peer::kMember);
    Http2Peer reader(process.queue_port(), "");
    const uint32_t stream = reader.Open(absl::StrCat("/", kQueueService, "/Read"));
    reader.Write(stream, GrpcMessage(request.SerializeAsString()), false);
    return !reader.AwaitMessage(stream).empty();
  };
  for (const Peer peer : {Peer::kWithoutRights, Peer::kMember}) {
    const auto by_stream = [&](google::protobuf::Message* message) {
      *static_cast<v1::ReadQueueRequest*>(message)->mutable_hello() = HelloOf(handle, peer);
    };
    Attack("queue, by gRPC", peer, process.pid(),
           GrpcMessages(kQueueService, {process.queue_port(), "", kQueueRequestBytes, by_stream}),
           join_as_reader);
    PacketSender sender{handle.local()};
    if (peer == Peer::kMember) {
      sender.first = [&] {
        v1::QueueLocalStep step;
        *step.mutable_hello() = HelloOf(handle, peer);
        return step.SerializeAsString();
      };
    }
    Attack("queue, by its local socket", peer, process.pid(),
           PacketMessages(*v1::QueueLocalStep::descriptor(), true, sender), join_as_reader);
  }
  ExpectLittleLeft(process.pid(), 0);
}

TEST_F(AmplificationTest, Mesh) {
  TrainingProcess process;
  Attack("connections of ranks", Peer::kWithoutRights, process.pid(),
         MeshMessages(process.mesh_port()), [&] { return ConnectAsRank(process.mesh_port()); });
  ExpectLittleLeft(process.pid(), 0);
}

// A socket or a service that is new needs a row.
TEST_F(AmplificationTest, EachWayInHasARow) {
  const auto path = [](const std::string& address) { return address.substr(sizeof("unix:") - 1); };
  const auto at = [](int port) { return absl::StrCat("port ", port); };
  EXPECT_EQ(ListeningSockets(coordinator_pid()),
            (std::set<std::string>{at(port()), at(deployment_.coordinator().metrics_port()),
                                   path(deployment_.coordinator_address())}));
  EXPECT_EQ(
      ListeningSockets(worker_pid()),
      (std::set<std::string>{at(worker_port()), at(deployment_.worker().metrics_port()),
                             path(deployment_.worker_address()),
                             absl::StrCat("@", deployment_.OpenSession().opened.attach_socket())}));
  TrainingProcess process;
  EXPECT_EQ(ListeningSockets(process.pid()),
            (std::set<std::string>{at(process.queue_port()), at(process.mesh_port()),
                                   absl::StrCat("@", process.handle().local())}));

  std::set<std::string> served = {kQueueService};
  for (const int one : {port(), worker_port()}) {
    for (const std::string& service : ServicesAt(one)) served.insert(service);
  }
  for (const google::protobuf::FileDescriptor* const file : KnownFiles()) {
    for (int i = 0; i < file->service_count(); ++i) {
      EXPECT_EQ(served.count(file->service(i)->full_name()), 1u) << file->service(i)->full_name();
    }
  }
}

std::string About(const std::string& command) {
  utsname system = {};
  uname(&system);
  std::ifstream processors("/proc/cpuinfo");
  std::string model;
  for (std::string line; model.empty() && std::getline(processors, line);) {
    if (absl::StartsWith(line, "model name")) model = line.substr(line.find(':') + 2);
  }
  return absl::StrCat("Measured on ",
                      absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()), " on ",
                      std::thread::hardware_concurrency(), " cores of ", model, ", Linux ",
                      system.release, ", with\n\n    ", command);
}

}  // namespace

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc >= 3 && absl::string_view(argv[1]) == "--write-page") page = argv[2];
  with_delays = argc >= 4 && absl::string_view(argv[3]) == "--with-delays";
  const int result = RUN_ALL_TESTS();
  if (page.empty()) return result;
#ifdef NDEBUG
  const std::string config = "--config=opt --define system_libraries=shared ";
#else
  const std::string config;
#endif
  std::ofstream(page) << PageOf(
      AllRows(), About(absl::StrCat("bazel run ", config,
                                    "//tests/amplification:amplification_test -- --write-page "
                                    "\"$PWD/docs/amplification.md\"",
                                    with_delays ? " --with-delays" : "")));
  return result;
}

}  // namespace cohort::amplification

int main(int argc, char** argv) { return cohort::amplification::Main(argc, argv); }
