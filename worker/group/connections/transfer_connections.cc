#include "worker/group/connections/transfer_connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/fork.h"
#include "base/status_macros.h"
#include "cohort/v1/connections.pb.h"

namespace cohort::worker {
namespace {

using shm::LocalSocket;

// Enough for a group of the most ranks.
constexpr uint32_t kMaxBytes = 1 << 20;
constexpr uint32_t kMaxFds = 1 << 12;

// The first message. The bytes follow, in as many messages as they need, and then the descriptors.
// A message with descriptors has one byte.
struct Preface {
  uint32_t bytes;
  uint32_t fds;
};
constexpr char kFds = 'd';

void AddMesh(const std::optional<Mesh>& mesh, google::protobuf::RepeatedField<int32_t>* streams,
             std::vector<int>& fds) {
  if (!mesh.has_value()) return;
  for (const std::vector<RankSocket>& of_rank : mesh->streams) {
    streams->Add(static_cast<int32_t>(of_rank.size()));
    for (const RankSocket& socket : of_rank) fds.push_back(socket.fd());
  }
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed connections from the worker: ", what));
}

bool IsStream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

class ConnectionsReceiver {
 public:
  ConnectionsReceiver(v1::ConnectionsMessage message, std::vector<UniqueFd> fds,
                      std::shared_ptr<const shm::Segment> heap)
      : message_(std::move(message)), fds_(std::move(fds)), heap_(std::move(heap)) {}

  absl::StatusOr<Connections> Take() {
    const int size = message_.paths_size();
    const int rank = message_.rank();
    if (rank < 0 || rank >= size) {
      return Malformed(absl::StrCat("rank ", rank, " of a group of ", size));
    }
    Connections connections;
    connections.rank = rank;
    connections.why_not = message_.why_not();
    connections.paths.assign(message_.paths().begin(), message_.paths().end());
    if (message_.machines_size() != size) {
      return Malformed(absl::StrCat(message_.machines_size(), " machines for ", size, " ranks"));
    }
    connections.machines.assign(message_.machines().begin(), message_.machines().end());
    std::vector<int> seen(static_cast<size_t>(size));
    for (const v1::RanksOfHost& host : message_.hosts()) {
      for (const int other : host.ranks()) {
        if (other < 0 || other >= size || seen[static_cast<size_t>(other)]++ > 0) {
          return Malformed(absl::StrCat("rank ", other, " is outside the group or twice in it"));
        }
      }
      if (host.ranks().empty()) return Malformed("a host without ranks");
      connections.hosts.emplace_back(host.ranks().begin(), host.ranks().end());
    }
    if (std::count(seen.begin(), seen.end(), 1) != size) return Malformed("a rank is on no host");
    const Crossing crossing = CrossingOf(connections.hosts, rank);
    const std::vector<int>& own_host = connections.hosts[crossing.host];
    if (own_host.size() > 1) {
      COHORT_ASSIGN_OR_RETURN(connections.memory, TakeMemory(own_host));
    }
    const auto hosts = static_cast<int>(connections.hosts.size());
    if (hosts > 1) {
      COHORT_ASSIGN_OR_RETURN(connections.mesh, TakeMesh(message_.mesh_streams(), size, rank));
    }
    if (hosts > 1 && hosts < size && crossing.crosses) {
      COHORT_ASSIGN_OR_RETURN(connections.across, TakeMesh(message_.crossing_streams(), hosts,
                                                           static_cast<int>(crossing.host)));
    }
    if (message_.has_tls_secret()) {
      const size_t bytes = message_.tls_secret().size();
      if (hosts == 1 || bytes != Id128::kBytes) {
        return Malformed(absl::StrCat("a TLS secret of ", bytes, " bytes for ", hosts, " hosts"));
      }
      connections.tls_secret = Id128::FromBytes(message_.tls_secret());
    }
    if (message_.has_operation_log()) {
      if (own_host.size() < 2 || hosts > 1) {
        return Malformed("an operation log, which needs all ranks of the group on one host");
      }
      COHORT_ASSIGN_OR_RETURN(UniqueFd fd, Next());
      COHORT_ASSIGN_OR_RETURN(NcclOperationLog operation_log,
                              NcclOperationLog::Attach(fd.release(), size));
      connections.operation_log =
          std::make_shared<const NcclOperationLog>(std::move(operation_log));
    }
    if (next_ != fds_.size()) {
      return Malformed(absl::StrCat(fds_.size(), " descriptors, expected ", next_));
    }
    return connections;
  }

 private:
  absl::StatusOr<UniqueFd> Next() {
    if (next_ == fds_.size()) return Malformed(absl::StrCat(next_, " descriptors are too few"));
    return std::move(fds_[next_++]);
  }

  absl::StatusOr<std::unique_ptr<HostMemory>> TakeMemory(const std::vector<int>& ranks) {
    if (static_cast<size_t>(message_.heap_bytes_size()) != ranks.size()) {
      return Malformed(absl::StrCat(message_.heap_bytes_size(), " heaps for ", ranks.size(),
                                    " ranks of this host"));
    }
    COHORT_ASSIGN_OR_RETURN(UniqueFd space_fd, Next());
    COHORT_ASSIGN_OR_RETURN(
        HostSharedMemory space,
        HostSharedMemory::Attach(space_fd.release(), static_cast<int>(ranks.size())));
    RankHeaps heaps;
    for (size_t i = 0; i < ranks.size(); ++i) {
      COHORT_ASSIGN_OR_RETURN(UniqueFd fd, Next());
      if (ranks[i] == message_.rank()) {
        heaps.push_back(heap_);
        continue;
      }
      COHORT_ASSIGN_OR_RETURN(
          shm::Segment segment,
          shm::Segment::Map(fd.release(), message_.heap_bytes(static_cast<int>(i))));
      heaps.push_back(std::make_shared<shm::Segment>(std::move(segment)));
    }
    return std::make_unique<HostMemory>(HostMemory{std::move(space), std::move(heaps)});
  }

  absl::StatusOr<Mesh> TakeMesh(const google::protobuf::RepeatedField<int32_t>& streams, int size,
                                int own) {
    if (streams.size() != size) {
      return Malformed(absl::StrCat("sockets to ", streams.size(), " ranks of ", size));
    }
    Mesh mesh;
    for (int rank = 0; rank < size; ++rank) {
      mesh.streams.emplace_back();
      if (streams[rank] < (rank == own ? 0 : 1)) {
        return Malformed(absl::StrCat("no socket to rank ", rank));
      }
      for (int32_t i = 0; i < streams[rank]; ++i) {
        COHORT_ASSIGN_OR_RETURN(UniqueFd fd, Next());
        if (!IsStream(fd.get())) {
          return Malformed(absl::StrCat("a descriptor that is not a socket for rank ", rank));
        }
        mesh.streams.back().emplace_back(std::move(fd));
      }
    }
    return mesh;
  }

  const v1::ConnectionsMessage message_;
  std::vector<UniqueFd> fds_;
  size_t next_ = 0;
  const std::shared_ptr<const shm::Segment> heap_;
};

}  // namespace

absl::Status SendConnections(const Connections& connections, const LocalSocket& socket,
                             Instant deadline) {
  v1::ConnectionsMessage message;
  std::vector<int> fds;
  message.set_version(kConnectionsVersion);
  message.set_rank(connections.rank);
  message.set_why_not(connections.why_not);
  for (const std::string& path : connections.paths) message.add_paths(path);
  for (const std::string& machine : connections.machines) message.add_machines(machine);
  for (const std::vector<int>& host : connections.hosts) {
    message.add_hosts()->mutable_ranks()->Add(host.begin(), host.end());
  }
  if (connections.memory != nullptr) {
    fds.push_back(connections.memory->space.fd());
    for (const auto& heap : connections.memory->heaps) {
      message.add_heap_bytes(heap->size());
      fds.push_back(heap->fd());
    }
  }
  AddMesh(connections.mesh, message.mutable_mesh_streams(), fds);
  AddMesh(connections.across, message.mutable_crossing_streams(), fds);
  if (connections.tls_secret.has_value()) {
    message.set_tls_secret(connections.tls_secret->ToBytes());
  }
  if (connections.operation_log != nullptr) {
    message.set_has_operation_log(true);
    fds.push_back(connections.operation_log->fd());
  }

  const std::string bytes = message.SerializeAsString();
  const Preface preface = {static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(fds.size())};
  COHORT_RETURN_IF_ERROR(
      socket.Send({reinterpret_cast<const char*>(&preface), sizeof(preface)}, {}, deadline));
  for (size_t at = 0; at < bytes.size(); at += LocalSocket::kMaxBytes) {
    const absl::string_view part = absl::string_view(bytes).substr(at, LocalSocket::kMaxBytes);
    COHORT_RETURN_IF_ERROR(socket.Send(part, {}, deadline));
  }
  for (size_t at = 0; at < fds.size(); at += LocalSocket::kMaxFds) {
    const absl::Span<const int> some = absl::MakeConstSpan(fds).subspan(at, LocalSocket::kMaxFds);
    COHORT_RETURN_IF_ERROR(socket.Send({&kFds, 1}, some, deadline));
  }
  return absl::OkStatus();
}

absl::StatusOr<Connections> ReceiveConnections(const LocalSocket& socket,
                                               std::shared_ptr<const shm::Segment> heap,
                                               Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(LocalSocket::Message first, socket.Receive(deadline));
  Preface preface = {};
  if (first.bytes.size() != sizeof(preface)) {
    return Malformed(
        absl::StrCat("a preface of ", first.bytes.size(), " bytes, expected ", sizeof(preface)));
  }
  std::memcpy(&preface, first.bytes.data(), sizeof(preface));
  if (preface.bytes > kMaxBytes || preface.fds > kMaxFds) {
    return Malformed(absl::StrCat(preface.bytes, " bytes and ", preface.fds,
                                  " descriptors, at most ", kMaxBytes, " and ", kMaxFds));
  }
  std::string bytes;
  while (bytes.size() < preface.bytes) {
    COHORT_ASSIGN_OR_RETURN(LocalSocket::Message part, socket.Receive(deadline));
    bytes += part.bytes;
  }
  std::vector<UniqueFd> fds;
  while (fds.size() < preface.fds) {
    COHORT_ASSIGN_OR_RETURN(LocalSocket::Message some, socket.Receive(deadline));
    if (some.fds.empty()) {
      return Malformed(absl::StrCat(fds.size(), " descriptors, expected ", preface.fds));
    }
    for (UniqueFd& fd : some.fds) {
      CloseInChildren(fd.get());
      fds.push_back(std::move(fd));
    }
  }
  v1::ConnectionsMessage message;
  if (!message.ParseFromString(bytes)) return Malformed("they are not a ConnectionsMessage");
  if (message.version() != kConnectionsVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker sends connections of version ", message.version(),
                     ", this client expects version ", kConnectionsVersion));
  }
  return ConnectionsReceiver(std::move(message), std::move(fds), std::move(heap)).Take();
}

}  // namespace cohort::worker
