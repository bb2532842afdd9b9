#include "worker/group/connections/transfer_connections.h"

#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/heap.h"
#include "base/tls/testing/certificates.h"
#include "base/unique_fd.h"
#include "cohort/v1/connections.pb.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/link_proof.h"
#include "worker/communicator/socket/testing/socket_group.h"
#include "worker/group/connections/secure_connections.h"

namespace cohort::worker {
namespace {

using shm::LocalListener;
using shm::LocalSocket;

struct Ends {
  LocalSocket daemon;
  LocalSocket client;
};

Ends Connected() {
  const absl::StatusOr<LocalListener> listener = LocalListener::Create();
  EXPECT_TRUE(listener.ok()) << listener.status();
  Ends ends;
  ends.client = *LocalSocket::Connect(listener->name(), Soon());
  ends.daemon = *listener->Accept(Soon());
  return ends;
}

// Two hosts of two ranks, within one process.
class TransferConnectionsTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;
  const Hosts kHosts = {{0, 2}, {1, 3}};

  TransferConnectionsTest() {
    for (int rank = 0; rank < kRanks; ++rank) {
      heaps_.push_back(*shm::Heap::Create("test-heap", size_t{1} << 24));
    }
    for (size_t host = 0; host < kHosts.size(); ++host)
      spaces_.push_back(*HostSharedMemory::Create(2));
  }

  std::shared_ptr<const shm::Segment> HeapOf(int rank) const {
    const auto& heap = heaps_[static_cast<size_t>(rank)];
    return {heap, &heap->segment()};
  }

  Connections MakeConnections(int rank, const TestGroup& mesh,
                              const std::vector<TestGroup>& crossings, bool tls) const {
    Connections connections;
    connections.rank = rank;
    connections.hosts = kHosts;
    connections.paths.assign(kRanks, "tcp");
    connections.machines.assign(kRanks, "here");
    connections.why_not = "no reason";
    const Crossing crossing = CrossingOf(kHosts, rank);
    RankHeaps heaps;
    for (const int other : kHosts[crossing.host]) heaps.push_back(HeapOf(other));
    connections.memory = std::make_unique<HostMemory>(HostMemory{
        *HostSharedMemory::Attach(dup(spaces_[crossing.host].fd()), 2), std::move(heaps)});
    connections.mesh = *SocketCommunicator::ConnectLinks(
        rank, mesh.listeners[static_cast<size_t>(rank)], mesh.addresses,
        tls ? SecretBeforeTls(kTestSecret) : kTestSecret, OptionsOfMesh(), Soon());
    const TestGroup& across = crossings[crossing.index];
    connections.across = *SocketCommunicator::ConnectLinks(
        static_cast<int>(crossing.host), across.listeners[crossing.host], across.addresses,
        tls ? SecretBeforeTls(SecretOfCrossing(kTestSecret, crossing)) : kTestSecret,
        OptionsOfCrossing(crossing), Soon());
    if (tls) connections.tls_secret = kTestSecret;
    return connections;
  }

  // Sends each rank's connections, puts TLS on them if there are `files`, and uses them.
  void SendAndUse(const std::optional<TlsFiles>& files) const {
    const TestGroup mesh(kRanks);
    std::vector<TestGroup> crossings;
    for (int index = 0; index < 2; ++index) crossings.emplace_back(2);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        Ends ends = Connected();
        {
          const Connections connections = MakeConnections(rank, mesh, crossings, files.has_value());
          const absl::Status sent = SendConnections(connections, ends.daemon, Soon());
          ASSERT_TRUE(sent.ok()) << sent;
        }
        absl::StatusOr<Connections> taken = ReceiveConnections(ends.client, HeapOf(rank), Soon());
        ASSERT_TRUE(taken.ok()) << taken.status();
        EXPECT_EQ(taken->hosts, kHosts);
        EXPECT_EQ(taken->why_not, "no reason");
        if (files.has_value()) {
          Connections not_secured;
          not_secured.paths = taken->paths;
          not_secured.tls_secret = taken->tls_secret;
          EXPECT_TRUE(
              absl::IsFailedPrecondition(MakeCommunicator(std::move(not_secured)).status()));
        }
        const absl::Status secured = SecureConnections(*taken, files.value_or(TlsFiles()), Soon());
        ASSERT_TRUE(secured.ok()) << secured;
        EXPECT_EQ(taken->mesh->streams[static_cast<size_t>(rank == 0)][0].has_tls(),
                  files.has_value());
        absl::StatusOr<std::unique_ptr<Communicator>> group = MakeCommunicator(*std::move(taken));
        ASSERT_TRUE(group.ok()) << group.status();
        // A small call goes through the mesh, a large one through both levels.
        for (const int64_t count : {int64_t{1}, int64_t{100000}}) {
          std::vector<float> values(static_cast<size_t>(count), static_cast<float>(rank + 1));
          const absl::Status status = (*group)->AllReduce(values.data(), values.data(), count,
                                                          DataType::kF32, {ReduceOp::kSum}, Soon());
          ASSERT_TRUE(status.ok()) << status;
          EXPECT_EQ(values, std::vector<float>(values.size(), 10.0f));
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  std::vector<std::shared_ptr<shm::Heap>> heaps_;
  std::vector<HostSharedMemory> spaces_;
};

TEST_F(TransferConnectionsTest, SentConnectionsWork) { SendAndUse(std::nullopt); }

TEST_F(TransferConnectionsTest, TheReceiverPutsTlsOnTheSockets) {
  const testing::CertificateAuthority ca(::testing::TempDir());
  SendAndUse(ca.Sign("rank", {"rank", ""}));
}

TEST_F(TransferConnectionsTest, MalformedBytesAreRefused) {
  // A preface with the numbers of bytes and of descriptors, and the bytes that follow.
  const std::vector<std::pair<std::vector<uint32_t>, std::string>> strange = {
      {{0, 0}, ""}, {{1u << 31, 0}, ""}, {{4, 1u << 31}, "abcd"}, {{4, 0}, "abcd"}, {{1}, ""}};
  for (const auto& [preface, bytes] : strange) {
    Ends ends = Connected();
    const absl::string_view first(reinterpret_cast<const char*>(preface.data()),
                                  preface.size() * sizeof(uint32_t));
    ASSERT_TRUE(ends.daemon.Send(first, {}, Soon()).ok());
    if (!bytes.empty()) {
      ASSERT_TRUE(ends.daemon.Send(bytes, {}, Soon()).ok());
    }
    const absl::Status status = ReceiveConnections(ends.client, HeapOf(0), Soon()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) << status;
  }
}

// Reads of memory that shrinks later would end the reader.
TEST_F(TransferConnectionsTest, MemoryWhoseSizeIsNotSealedIsRefused) {
  constexpr uint64_t kBytes = 4096;
  for (const bool space_is_loose : {true, false}) {
    const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(loose.get(), kBytes), 0);
    v1::ConnectionsMessage said;
    said.set_version(kConnectionsVersion);
    said.add_paths("self");
    said.add_paths("shared memory");
    said.add_machines("here");
    said.add_machines("here");
    v1::RanksOfHost& host = *said.add_hosts();
    host.add_ranks(0);
    host.add_ranks(1);
    said.add_heap_bytes(kBytes);
    said.add_heap_bytes(kBytes);
    const int space = space_is_loose ? loose.get() : spaces_[0].fd();
    const int fds[] = {space, HeapOf(0)->fd(), loose.get()};
    const std::string bytes = said.SerializeAsString();
    const uint32_t preface[] = {static_cast<uint32_t>(bytes.size()), 3};
    Ends ends = Connected();
    const absl::string_view first(reinterpret_cast<const char*>(preface), sizeof(preface));
    ASSERT_TRUE(ends.daemon.Send(first, {}, Soon()).ok());
    ASSERT_TRUE(ends.daemon.Send(bytes, {}, Soon()).ok());
    ASSERT_TRUE(ends.daemon.Send("d", fds, Soon()).ok());
    const absl::Status status = ReceiveConnections(ends.client, HeapOf(0), Soon()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("its size is not sealed"), absl::string_view::npos) << status;
  }
}

// An operation log fits two ranks that share all memory, and not two ranks on two hosts.
TEST_F(TransferConnectionsTest, AnOperationLogIsSentWithTheMemoryOfAllRanks) {
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(2);
  ASSERT_TRUE(operation_log.ok()) << operation_log.status();
  operation_log->Fail(absl::AbortedError("seen by both"));
  for (const bool on_one_host : {true, false}) {
    Connections connections;
    connections.hosts = on_one_host ? Hosts{{0, 1}} : Hosts{{0}, {1}};
    connections.paths = {"self", "shared memory"};
    connections.machines = {"here", "here"};
    if (on_one_host) {
      connections.memory = std::make_unique<HostMemory>(
          HostMemory{*HostSharedMemory::Attach(dup(spaces_[0].fd()), 2), {HeapOf(0), HeapOf(1)}});
    }
    connections.operation_log = std::make_shared<const NcclOperationLog>(
        *NcclOperationLog::Attach(dup(operation_log->fd()), 2));
    Ends ends = Connected();
    ASSERT_TRUE(SendConnections(connections, ends.daemon, Soon()).ok());
    const absl::StatusOr<Connections> taken = ReceiveConnections(ends.client, HeapOf(0), Soon());
    if (on_one_host) {
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ(taken->operation_log->error(), absl::AbortedError("seen by both"));
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(taken.status())) << taken.status();
    }
  }
}

// Version 3 had no machines; the other version is the next one.
TEST_F(TransferConnectionsTest, AnotherVersionSaysSo) {
  for (const uint32_t version : {uint32_t{3}, kConnectionsVersion + 1}) {
    v1::ConnectionsMessage said;
    said.set_version(version);
    said.add_paths("self");
    said.add_hosts()->add_ranks(0);
    const std::string bytes = said.SerializeAsString();
    const uint32_t preface[] = {static_cast<uint32_t>(bytes.size()), 0};
    Ends ends = Connected();
    const absl::string_view first(reinterpret_cast<const char*>(preface), sizeof(preface));
    ASSERT_TRUE(ends.daemon.Send(first, {}, Soon()).ok());
    ASSERT_TRUE(ends.daemon.Send(bytes, {}, Soon()).ok());
    const absl::Status status = ReceiveConnections(ends.client, HeapOf(0), Soon()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find(absl::StrCat("connections of version ", version)),
              absl::string_view::npos)
        << status;
  }
}

// A new field needs a new version, because builds without it exist.
TEST_F(TransferConnectionsTest, TheMessageHasItsVersion) {
  EXPECT_EQ(v1::ConnectionsMessage::descriptor()->field_count(), 11)
      << "raise kConnectionsVersion, too";
  EXPECT_EQ(kConnectionsVersion, 5u);
}

TEST_F(TransferConnectionsTest, ADescriptorThatIsNoSocketIsRefused) {
  v1::ConnectionsMessage said;
  said.set_version(kConnectionsVersion);
  for (int rank = 0; rank < 2; ++rank) {
    said.add_paths("tcp");
    said.add_machines("here");
    said.add_hosts()->add_ranks(rank);
    said.add_mesh_streams(rank);
  }
  const std::string bytes = said.SerializeAsString();
  const uint32_t preface[] = {static_cast<uint32_t>(bytes.size()), 1};
  const int fds[] = {spaces_[0].fd()};
  Ends ends = Connected();
  const absl::string_view first(reinterpret_cast<const char*>(preface), sizeof(preface));
  ASSERT_TRUE(ends.daemon.Send(first, {}, Soon()).ok());
  ASSERT_TRUE(ends.daemon.Send(bytes, {}, Soon()).ok());
  ASSERT_TRUE(ends.daemon.Send("d", fds, Soon()).ok());
  const absl::Status status = ReceiveConnections(ends.client, HeapOf(0), Soon()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(TransferConnectionsTest, AWorkerThatGoesIsNamed) {
  Ends ends = Connected();
  ends.daemon = LocalSocket();
  const absl::Status status = ReceiveConnections(ends.client, HeapOf(0), Soon()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace cohort::worker
