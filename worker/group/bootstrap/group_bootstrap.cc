// One file, though long: the rounds of one exchange use that which the ranks said in the first.
#include "worker/group/bootstrap/group_bootstrap.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/host_name.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "base/rpc/rank_network.h"
#include "base/shm/host_folder.h"
#include "base/shm/local_socket.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "cohort/v1/rank_info.pb.h"
#include "worker/communicator/nccl/agreement/nccl_operation_log.h"
#include "worker/communicator/socket/mesh/link_proof.h"
#include "worker/communicator/socket/mesh/rank_listener.h"
#include "worker/communicator/socket/socket_communicator.h"
#include "worker/group/bootstrap/host_bootstrap.h"
#include "worker/group/bootstrap/host_identity.h"
#include "worker/group/bootstrap/neighbors.h"
#include "worker/group/connections/secure_connections.h"

namespace cohort::worker {
namespace {

// The version of RankInfo, and of all messages that ranks then send each other.
constexpr uint32_t kVersion = 8;
// The names of the rounds through the coordinator.
constexpr char kRankInfo[] = "cohort.bootstrap.rank_info";
constexpr char kReach[] = "cohort.bootstrap.reach";
constexpr char kMeshed[] = "cohort.bootstrap.meshed";
constexpr char kAddress[] = "cohort.bootstrap.address";
// The tag of an object that is never sent: its receiver hears the end of the generation.
constexpr char kFailure[] = "cohort.bootstrap.failure";
// The begin of the error with which a rank ends a generation that it cannot connect to.
constexpr char kCannotConnect[] = "cannot connect the ranks: ";
constexpr absl::Duration kReportTimeout = absl::Seconds(5);

absl::StatusOr<std::string> RandomSecret() {
  std::string secret(Id128::kBytes, '\0');
  if (getrandom(&secret[0], secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  return secret;
}

std::vector<PeerTls> PeersOf(const RankInfos& infos) {
  static_assert(static_cast<int>(TlsState::kUnknown) == v1::RANK_TLS_UNSPECIFIED &&
                static_cast<int>(TlsState::kOn) == v1::RANK_TLS_ON &&
                static_cast<int>(TlsState::kOff) == v1::RANK_TLS_OFF &&
                static_cast<int>(TlsState::kNoCertificate) == v1::RANK_TLS_NO_CERTIFICATE &&
                static_cast<int>(TlsState::kNoCa) == v1::RANK_TLS_NO_CA &&
                static_cast<int>(TlsState::kCaAlone) == v1::RANK_TLS_CA_ALONE);
  std::vector<PeerTls> peers;
  for (const v1::RankInfo& info : infos) {
    peers.push_back({info.host_name(), static_cast<TlsState>(info.tls())});
  }
  return peers;
}

// Wakes a rank that connects when the generation ends.
class EndOfGeneration {
 public:
  explicit EndOfGeneration(client::ProcessGroup& group) : state_(std::make_shared<State>()) {
    client::AsyncOptions options;
    options.timeout = absl::Hours(1);
    options.cancellation = state_->cancellation;
    group.async().Receive(std::nullopt, kFailure, options,
                          [state = state_](absl::StatusOr<client::ReceivedObject> received) {
                            MutexLock lock(&state->mutex);
                            state->reason = received.status();
                            // The mailbox may be full or the coordinator away: no reason to end.
                            if (!absl::IsAborted(state->reason)) return;
                            eventfd_write(state->event.get(), 1);
                          });
  }
  ~EndOfGeneration() {
    state_->cancellation->Cancel(absl::CancelledError("the ranks are connected"));
  }

  int fd() const { return state_->event.get(); }
  // A rank's reason why it cannot connect is an error of this rank, too. After another end this
  // rank may join the next generation.
  absl::Status reason() const {
    MutexLock lock(&state_->mutex);
    const absl::string_view text = state_->reason.message();
    if (!absl::StrContains(text, kCannotConnect)) return state_->reason;
    return absl::UnavailableError(text);
  }

 private:
  struct State {
    const std::shared_ptr<client::Cancellation> cancellation =
        std::make_shared<client::Cancellation>();
    const UniqueFd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    mutable Mutex mutex;
    absl::Status reason ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_;
};

class Bootstrap {
 public:
  Bootstrap(client::ProcessGroup& group, const BootstrapOptions& options)
      : group_(group), options_(options), deadline_(Clock::Steady().Now() + options.timeout) {}

  absl::StatusOr<ConnectedRanks> Run(const std::string& coordinator_address) {
    ConnectedRanks connected;
    Connections& connections = connected.connections;
    connections.rank = group_.rank();
    COHORT_RETURN_IF_ERROR(TakeDescriptors(MostDescriptorsOfGroup(group_.world_size())));
    if (group_.world_size() == 1) {
      connections.hosts = {{0}};
      connections.paths = {"self"};
      connections.machines = {Machine()};
      return connected;
    }
    COHORT_RETURN_IF_ERROR(ExchangeRankInfo(coordinator_address));
    firsts_ = FirstRanks(infos_);
    COHORT_RETURN_IF_ERROR(ReplaceLoopback());
    COHORT_ASSIGN_OR_RETURN(HostMembers members, ShareMemoryOnHost());
    COHORT_ASSIGN_OR_RETURN(connections.hosts, ExchangeReach(members, connected));
    COHORT_RETURN_IF_ERROR(TakeDescriptors(DescriptorsOfGroup(connections.hosts, group_.rank())));
    const size_t hosts = connections.hosts.size();
    if (hosts > 1) {
      COHORT_ASSIGN_OR_RETURN(tls_, UseTls(group_.group(), PeersOf(infos_)));
      if (tls_) connections.tls_secret = secret_;
    }
    connections.why_not = members.why_not;
    connections.paths = PathsOf(members);
    for (const v1::RankInfo& info : infos_) connections.machines.push_back(info.machine());
    connections.memory = std::move(members.memory);
    connected.links = std::move(members.links);
    if (members.common.size() > 0) {
      COHORT_ASSIGN_OR_RETURN(
          NcclOperationLog operation_log,
          NcclOperationLog::Over(std::move(members.common), group_.world_size()));
      connections.operation_log =
          std::make_shared<const NcclOperationLog>(std::move(operation_log));
    }
    if (hosts == 1) return connected;
    COHORT_ASSIGN_OR_RETURN(connections.mesh, BySockets());
    if (hosts == infos_.size()) return connected;
    // Waits until every rank has its mesh, because the next connections use the same listeners.
    COHORT_RETURN_IF_ERROR(AllGather("", kMeshed).status());
    COHORT_RETURN_IF_ERROR(Cross(connections));
    return connected;
  }

 private:
  absl::Status TakeDescriptors(int count) const {
    if (options_.take_descriptors == nullptr) return absl::OkStatus();
    return options_.take_descriptors(group_.world_size(), count);
  }

  absl::Duration Left() const {
    return std::max(deadline_ - Clock::Steady().Now(), absl::Milliseconds(1));
  }

  absl::StatusOr<client::ObjectList> AllGather(const std::string& object, const char* name) {
    client::RoundOptions round;
    round.name = name;
    round.timeout = Left();
    round.cancellation = options_.cancellation;
    return group_.AllGather(object, round);
  }

  std::string Machine() const {
    return options_.host_identity.empty() ? MachineIdentity() : options_.host_identity;
  }

  // Opens the local listener. Errors: why this rank cannot use its folder.
  absl::Status ListenOnHost(v1::RankInfo& info) {
    COHORT_ASSIGN_OR_RETURN(folder_, shm::HostFolder::Open(options_.host_folder));
    COHORT_ASSIGN_OR_RETURN(local_listener_, shm::LocalListener::Create(folder_));
    info.set_local_socket(local_listener_.name());
    if (!folder_.empty()) info.set_host_folder(absl::StrCat(Machine(), "/", folder_.id()));
    return absl::OkStatus();
  }

  absl::Status ExchangeRankInfo(const std::string& coordinator_address) {
    v1::RankInfo info;
    if (const absl::Status listens = ListenOnHost(info); absl::IsResourceExhausted(listens)) {
      return listens;
    } else if (!listens.ok()) {
      info.set_host_folder_error(listens.message().data(), listens.message().size());
    }
    AdvertisedHost advertised = {options_.advertised_host, "advertised_host"};
    if (advertised.host.empty()) {
      COHORT_ASSIGN_OR_RETURN(advertised, AdvertisedHostOfEnvironment());
    }
    if (advertised.host.empty()) {
      advertised.host = LocalAddressTowards(coordinator_address, &advertised.origin);
      info.set_may_change_address(true);
    }
    COHORT_ASSIGN_OR_RETURN(listener_, Listener::Open(advertised.host, 0));
    info.set_network(HostIdentity());
    info.set_is_loopback(listener_->is_loopback());
    info.set_address_origin(advertised.origin);
    info.set_version(kVersion);
    info.set_host(options_.host_identity.empty() ? HostIdentity() : options_.host_identity);
    info.set_machine(Machine());
    const shm::Segment& heap = options_.heap->segment();
    info.set_heap_bytes(heap.fd() < 0 ? 0 : heap.size());
    info.set_address(listener_->address());
    COHORT_ASSIGN_OR_RETURN(*info.mutable_secret(), RandomSecret());
    info.set_host_name(HostName());
    info.set_pid(getpid());
    info.set_placement(static_cast<uint32_t>(options_.placement));
    info.set_tls(static_cast<v1::RankTls>(options_.tls));
    COHORT_ASSIGN_OR_RETURN(const client::ObjectList infos,
                            AllGather(info.SerializeAsString(), kRankInfo));
    for (size_t rank = 0; rank < infos.size(); ++rank) {
      v1::RankInfo other;
      if (!other.ParseFromArray(infos[rank].data(), static_cast<int>(infos[rank].size())) ||
          other.version() != kVersion || other.secret().size() != Id128::kBytes) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " (", other.host_name(), ", process ", other.pid(),
                         ") speaks version ", other.version(), ", this one ", kVersion));
      }
      MakePrintable(*other.mutable_host_name());
      MakePrintable(*other.mutable_machine());
      MakePrintable(*other.mutable_address());
      MakePrintable(*other.mutable_address_origin());
      MakePrintable(*other.mutable_host_folder_error());
      infos_.push_back(std::move(other));
    }
    COHORT_RETURN_IF_ERROR(CheckHostFolders());
    COHORT_RETURN_IF_ERROR(CheckPlacements());
    secret_ = Id128::FromBytes(infos_[0].secret());
    return absl::OkStatus();
  }

  // A rank of another host than `rank`; null if no rank fits.
  const v1::RankInfo* Elsewhere(size_t rank, bool is_reachable) const {
    for (const v1::RankInfo& other : infos_) {
      if (other.network() == infos_[rank].network()) continue;
      if (!is_reachable || !other.is_loopback()) return &other;
    }
    return nullptr;
  }

  bool HasUselessAddress(size_t rank) const {
    return infos_[rank].is_loopback() && Elsewhere(rank, /*is_reachable=*/false) != nullptr;
  }

  // Ranks that advertise a loopback address to other hosts choose their address towards one of
  // these. All ranks take part, or none: each sees the same addresses.
  absl::Status ReplaceLoopback() {
    // Ranks that all share memory need no addresses, whatever their network namespaces.
    if (std::count(firsts_.begin(), firsts_.end(), 0u) == static_cast<long>(firsts_.size())) {
      return absl::OkStatus();
    }
    bool replaces = false;
    for (size_t rank = 0; rank < infos_.size(); ++rank) {
      if (!HasUselessAddress(rank)) continue;
      if (!infos_[rank].may_change_address() ||
          Elsewhere(rank, /*is_reachable=*/true) == nullptr) {
        return UselessAddress(rank);
      }
      replaces = true;
    }
    if (!replaces) return absl::OkStatus();
    const auto self = static_cast<size_t>(group_.rank());
    v1::RankAddress address;
    address.set_address(infos_[self].address());
    if (HasUselessAddress(self)) {
      const std::string host =
          LocalAddressTowards(Elsewhere(self, /*is_reachable=*/true)->address());
      // Without such an address, the ranks hear so by the exchange.
      if (absl::StatusOr<Listener> listener = Listener::Open(host, 0); listener.ok()) {
        listener_ = *std::move(listener);
      }
      address.set_address(listener_->address());
      address.set_is_loopback(listener_->is_loopback());
    }
    COHORT_ASSIGN_OR_RETURN(const client::ObjectList all,
                            AllGather(address.SerializeAsString(), kAddress));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      v1::RankAddress other;
      if (!other.ParseFromArray(all[rank].data(), static_cast<int>(all[rank].size()))) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " sent a malformed RankAddress"));
      }
      if (other.is_loopback()) return UselessAddress(rank);
      MakePrintable(*other.mutable_address());
      infos_[rank].set_address(other.address());
    }
    return absl::OkStatus();
  }

  absl::Status UselessAddress(size_t rank) const {
    const v1::RankInfo& info = infos_[rank];
    return absl::FailedPreconditionError(absl::StrCat(
        "group ", group_.group(), ": rank ", rank, " (", info.host_name(), ") advertises ",
        info.address(), ", a loopback address that ranks of other hosts cannot reach; reason: ",
        info.address_origin(),
        ". Set advertised_host, COHORT_ADVERTISED_HOST or COHORT_SOCKET_IFNAME on that rank"));
  }

  // Without the folder, a rank would be many times slower than the user expects.
  absl::Status CheckHostFolders() const {
    for (size_t rank = 0; rank < infos_.size(); ++rank) {
      const v1::RankInfo& info = infos_[rank];
      if (info.host_folder_error().empty()) continue;
      return absl::FailedPreconditionError(absl::StrCat("group ", group_.group(), ": rank ", rank,
                                                        " (", info.host_name(),
                                                        "): ", info.host_folder_error()));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPlacements() const {
    const auto placement_of = [&](size_t rank) {
      return NameOf(static_cast<Placement>(infos_[rank].placement()));
    };
    for (size_t rank = 1; rank < infos_.size(); ++rank) {
      if (infos_[rank].placement() == infos_[0].placement()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("ranks of group ", group_.group(), " want different placements: rank 0 ",
                       placement_of(0), ", rank ", rank, " ", placement_of(rank)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<HostMembers> ShareMemoryOnHost() {
    HostBootstrapOptions options;
    options.rank = group_.rank();
    options.secret = secret_;
    options.listener = &local_listener_;
    options.heap = {options_.heap, &options_.heap->segment()};
    options.window = options_.host_window;
    const auto self = static_cast<size_t>(group_.rank());
    RankSet unshared;
    bool had_company = false;
    for (size_t rank = 0; rank < infos_.size(); ++rank) {
      const v1::RankInfo& info = infos_[rank];
      const bool is_neighbor = AreNeighbors(infos_[self], info);
      had_company = had_company || (rank != self && is_neighbor);
      if (is_neighbor && IsUnshared(info)) unshared.Add(static_cast<int>(rank));
      if (firsts_[rank] != firsts_[self]) continue;
      const std::string folder = HaveOneFolder(infos_[self], info) ? folder_.id() : "";
      options.candidates.push_back({static_cast<int>(rank),
                                    folder_.AddressOf(info.local_socket(), folder),
                                    info.heap_bytes()});
    }
    // An operation log needs all ranks on this host.
    if (options_.placement != Placement::kHost && options.candidates.size() == infos_.size() &&
        group_.world_size() <= NcclOperationLog::kMaxRanks) {
      options.common_bytes = NcclOperationLog::Bytes(group_.world_size());
    }
    absl::StatusOr<HostMembers> members = BootstrapHost(options, deadline_);
    if (!members.ok() || !members->why_not.empty()) return members;
    if (had_company && !unshared.empty()) {
      members->why_not =
          absl::StrCat("rank ", unshared.ToString(),
                       " shares no memory: a seccomp filter or a security module of its process "
                       "refuses memfd_create");
    } else {
      members->why_not = WhyNotOneHost(infos_, firsts_, self);
    }
    return members;
  }

  // Returns which ranks share memory, as all of them report.
  absl::StatusOr<Hosts> ExchangeReach(const HostMembers& members, ConnectedRanks& connected) {
    v1::RankReach reach;
    for (const int rank : members.ranks) reach.add_shares_memory_with(rank);
    reach.set_why_not(members.why_not);
    COHORT_ASSIGN_OR_RETURN(const client::ObjectList all,
                            AllGather(reach.SerializeAsString(), kReach));
    Hosts hosts;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      v1::RankReach other;
      const bool understood =
          other.ParseFromArray(all[rank].data(), static_cast<int>(all[rank].size()));
      const auto& ranks = other.shares_memory_with();
      if (!understood ||
          std::find(ranks.begin(), ranks.end(), static_cast<int>(rank)) == ranks.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " sent a malformed RankReach"));
      }
      std::vector<std::string>& reasons = connected.why_not_of_all;
      if (!other.why_not().empty() &&
          std::find(reasons.begin(), reasons.end(), other.why_not()) == reasons.end()) {
        reasons.push_back(other.why_not());
      }
      if (ranks[0] == static_cast<int>(rank)) hosts.emplace_back(ranks.begin(), ranks.end());
    }
    size_t placed = 0;
    for (const std::vector<int>& host : hosts) placed += host.size();
    if (placed != all.size()) {
      return absl::FailedPreconditionError("the ranks disagree on the ranks that share memory");
    }
    return hosts;
  }

  std::vector<std::string> PathsOf(const HostMembers& members) const {
    std::vector<std::string> paths;
    const char* const kind = tls_ ? "tls " : "tcp ";
    for (const v1::RankInfo& info : infos_) paths.push_back(absl::StrCat(kind, info.address()));
    for (const int rank : members.ranks) paths[static_cast<size_t>(rank)] = "shared memory";
    paths[static_cast<size_t>(group_.rank())] = "self";
    return paths;
  }

  // The secret that ranks prove in plain text.
  Id128 SecretToConnect(const Id128& secret) const {
    return tls_ ? SecretBeforeTls(secret) : secret;
  }

  absl::StatusOr<Mesh> BySockets() {
    std::vector<std::string> addresses;
    for (const v1::RankInfo& info : infos_) addresses.push_back(info.address());
    return Connect(group_.rank(), addresses, SecretToConnect(secret_), OptionsOfMesh());
  }

  // The ranks wait for each other, so one that fails tells the others why.
  absl::StatusOr<Mesh> Connect(int self, const std::vector<std::string>& addresses,
                               const Id128& secret, SocketOptions options) {
    const EndOfGeneration end(group_);
    options.interrupt_fd = end.fd();
    absl::StatusOr<Mesh> mesh = SocketCommunicator::ConnectLinks(self, *listener_, addresses,
                                                                 secret, options, deadline_);
    if (mesh.ok()) return mesh;
    if (const absl::Status reason = end.reason(); absl::IsCancelled(mesh.status()) && !reason.ok()) {
      return reason;
    }
    client::AsyncOptions report;
    report.timeout = kReportTimeout;
    const auto reported = std::make_shared<absl::Notification>();
    group_.async().ReportError(
        absl::StrCat(kCannotConnect, "rank ", group_.rank(), ": ", mesh.status().message()),
        /*fatal=*/true, {}, report, [reported](const absl::Status&) { reported->Notify(); });
    // The caller leaves the group next, and the others would hear only that.
    reported->WaitForNotificationWithTimeout(kReportTimeout);
    return mesh;
  }

  absl::Status Cross(Connections& connections) {
    const Crossing crossing = CrossingOf(connections.hosts, group_.rank());
    if (!crossing.crosses) return absl::OkStatus();
    std::vector<std::string> addresses;
    for (const int rank : crossing.ranks) {
      addresses.push_back(infos_[static_cast<size_t>(rank)].address());
    }
    const Id128 secret = SecretToConnect(SecretOfCrossing(secret_, crossing));
    COHORT_ASSIGN_OR_RETURN(
        connections.across,
        Connect(static_cast<int>(crossing.host), addresses, secret, OptionsOfCrossing(crossing)));
    return absl::OkStatus();
  }

  client::ProcessGroup& group_;
  const BootstrapOptions& options_;
  const Instant deadline_;
  shm::HostFolder folder_;
  shm::LocalListener local_listener_;
  std::optional<Listener> listener_;
  RankInfos infos_;
  std::vector<size_t> firsts_;  // see FirstRanks
  Id128 secret_;
  bool tls_ = false;  // between hosts
};

}  // namespace

absl::StatusOr<ConnectedRanks> ConnectRanks(client::ProcessGroup& group,
                                            const std::string& coordinator_address,
                                            const BootstrapOptions& options) {
  return Bootstrap(group, options).Run(coordinator_address);
}

}  // namespace cohort::worker
