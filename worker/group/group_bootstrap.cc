#include "worker/group/group_bootstrap.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "cohort/v1/rank_card.pb.h"
#include "worker/communicator/nccl/nccl_board.h"
#include "worker/communicator/socket/listener.h"
#include "worker/communicator/socket/socket_communicator.h"
#include "worker/group/host_formation.h"
#include "worker/group/host_identity.h"

namespace cohort::worker {
namespace {

// The version of the cards, and of all that ranks then send each other.
constexpr uint32_t kVersion = 5;
// The names of the rounds through the coordinator.
constexpr char kCards[] = "cohort.bootstrap.cards";
constexpr char kReach[] = "cohort.bootstrap.reach";
constexpr char kMeshed[] = "cohort.bootstrap.meshed";

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

absl::StatusOr<std::string> RandomSecret() {
  std::string secret(Id128::kBytes, '\0');
  if (getrandom(&secret[0], secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  return secret;
}

class Bootstrap {
 public:
  Bootstrap(client::ProcessGroup& group, const BootstrapOptions& options)
      : group_(group), options_(options), deadline_(Clock::Steady().Now() + options.timeout) {}

  absl::StatusOr<MetRanks> Run(const std::string& coordinator_address) {
    MetRanks met;
    Connections& connections = met.connections;
    connections.rank = group_.rank();
    COHORT_RETURN_IF_ERROR(TakeDescriptors(MostDescriptorsOfGroup(group_.world_size())));
    if (group_.world_size() == 1) {
      connections.hosts = {{0}};
      connections.paths = {"self"};
      connections.machines = {Machine()};
      return met;
    }
    COHORT_RETURN_IF_ERROR(ExchangeCards(coordinator_address));
    COHORT_ASSIGN_OR_RETURN(HostFormation formation, MeetOnHost());
    COHORT_ASSIGN_OR_RETURN(connections.hosts, ExchangeReach(formation, met));
    COHORT_RETURN_IF_ERROR(TakeDescriptors(DescriptorsOfGroup(connections.hosts, group_.rank())));
    connections.why_not = formation.why_not;
    connections.paths = PathsOf(formation);
    for (const v1::RankCard& card : cards_) connections.machines.push_back(card.machine());
    connections.memory = std::move(formation.memory);
    met.links = std::move(formation.links);
    if (formation.common.size() > 0) {
      COHORT_ASSIGN_OR_RETURN(NcclBoard board,
                              NcclBoard::Over(std::move(formation.common), group_.world_size()));
      connections.board = std::make_shared<const NcclBoard>(std::move(board));
    }
    const size_t hosts = connections.hosts.size();
    if (hosts == 1) return met;
    COHORT_ASSIGN_OR_RETURN(connections.mesh, BySockets());
    if (hosts == cards_.size()) return met;
    // Waits until every rank has its mesh, because the next connections use the same listeners.
    COHORT_RETURN_IF_ERROR(AllGather("", kMeshed).status());
    COHORT_RETURN_IF_ERROR(Cross(connections));
    return met;
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

  absl::Status ExchangeCards(const std::string& coordinator_address) {
    COHORT_ASSIGN_OR_RETURN(local_listener_, shm::LocalListener::Create());
    const std::string host = options_.advertised_host.empty()
                                 ? LocalAddressTowards(coordinator_address)
                                 : options_.advertised_host;
    COHORT_ASSIGN_OR_RETURN(listener_, Listener::Open(host, 0));
    v1::RankCard card;
    card.set_version(kVersion);
    card.set_host(options_.host_identity.empty() ? HostIdentity() : options_.host_identity);
    card.set_machine(Machine());
    card.set_local_socket(local_listener_.name());
    card.set_heap_bytes(options_.heap->segment().size());
    card.set_address(listener_->address());
    COHORT_ASSIGN_OR_RETURN(*card.mutable_secret(), RandomSecret());
    card.set_host_name(HostName());
    card.set_pid(getpid());
    card.set_placement(static_cast<uint32_t>(options_.placement));
    COHORT_ASSIGN_OR_RETURN(const client::ObjectList cards,
                            AllGather(card.SerializeAsString(), kCards));
    for (size_t rank = 0; rank < cards.size(); ++rank) {
      v1::RankCard other;
      if (!other.ParseFromArray(cards[rank].data(), static_cast<int>(cards[rank].size())) ||
          other.version() != kVersion || other.secret().size() != Id128::kBytes) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " (", other.host_name(), ", process ", other.pid(),
                         ") speaks version ", other.version(), ", this one ", kVersion));
      }
      MakePrintable(*other.mutable_host_name());
      MakePrintable(*other.mutable_machine());
      cards_.push_back(std::move(other));
    }
    COHORT_RETURN_IF_ERROR(CheckPlacements());
    secret_ = Id128::FromBytes(cards_[0].secret());
    return absl::OkStatus();
  }

  absl::Status CheckPlacements() const {
    const auto placement_of = [&](size_t rank) {
      return NameOf(static_cast<Placement>(cards_[rank].placement()));
    };
    for (size_t rank = 1; rank < cards_.size(); ++rank) {
      if (cards_[rank].placement() == cards_[0].placement()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("ranks of group ", group_.group(), " want different placements: rank 0 ",
                       placement_of(0), ", rank ", rank, " ", placement_of(rank)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<HostFormation> MeetOnHost() {
    HostFormationOptions options;
    options.rank = group_.rank();
    options.secret = secret_;
    options.listener = &local_listener_;
    options.heap = {options_.heap, &options_.heap->segment()};
    options.window = options_.host_window;
    for (size_t rank = 0; rank < cards_.size(); ++rank) {
      const v1::RankCard& card = cards_[rank];
      if (card.host() != cards_[static_cast<size_t>(group_.rank())].host()) continue;
      options.candidates.push_back(
          {static_cast<int>(rank), card.local_socket(), card.heap_bytes()});
    }
    // A board needs all ranks on this host.
    if (options_.placement != Placement::kHost && options.candidates.size() == cards_.size() &&
        group_.world_size() <= NcclBoard::kMaxRanks) {
      options.common_bytes = NcclBoard::Bytes(group_.world_size());
    }
    return FormHost(options, deadline_);
  }

  // Returns which ranks share memory, as all of them report.
  absl::StatusOr<Hosts> ExchangeReach(const HostFormation& formation, MetRanks& met) {
    v1::RankReach reach;
    for (const int rank : formation.ranks) reach.add_shares_memory_with(rank);
    reach.set_why_not(formation.why_not);
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
            absl::StrCat("rank ", rank, " says what nobody understands"));
      }
      std::vector<std::string>& reasons = met.why_not_of_all;
      if (!other.why_not().empty() &&
          std::find(reasons.begin(), reasons.end(), other.why_not()) == reasons.end()) {
        reasons.push_back(other.why_not());
      }
      if (ranks[0] == static_cast<int>(rank)) hosts.emplace_back(ranks.begin(), ranks.end());
    }
    size_t placed = 0;
    for (const std::vector<int>& host : hosts) placed += host.size();
    if (placed != all.size()) {
      return absl::FailedPreconditionError("the ranks do not agree on who shares memory");
    }
    return hosts;
  }

  std::vector<std::string> PathsOf(const HostFormation& formation) const {
    std::vector<std::string> paths;
    for (const v1::RankCard& card : cards_) paths.push_back(absl::StrCat("tcp ", card.address()));
    for (const int rank : formation.ranks) paths[static_cast<size_t>(rank)] = "shared memory";
    paths[static_cast<size_t>(group_.rank())] = "self";
    return paths;
  }

  absl::StatusOr<Mesh> BySockets() {
    std::vector<std::string> addresses;
    for (const v1::RankCard& card : cards_) addresses.push_back(card.address());
    return SocketCommunicator::ConnectLinks(group_.rank(), *listener_, addresses, secret_,
                                            OptionsOfMesh(), deadline_);
  }

  absl::Status Cross(Connections& connections) {
    const Crossing crossing = CrossingOf(connections.hosts, group_.rank());
    if (!crossing.crosses) return absl::OkStatus();
    std::vector<std::string> addresses;
    for (const int rank : crossing.ranks) {
      addresses.push_back(cards_[static_cast<size_t>(rank)].address());
    }
    const Id128 secret = {secret_.high, secret_.low + 1 + crossing.place};
    COHORT_ASSIGN_OR_RETURN(
        connections.across,
        SocketCommunicator::ConnectLinks(static_cast<int>(crossing.host), *listener_, addresses,
                                         secret, OptionsOfCrossing(crossing), deadline_));
    return absl::OkStatus();
  }

  client::ProcessGroup& group_;
  const BootstrapOptions& options_;
  const Instant deadline_;
  shm::LocalListener local_listener_;
  std::optional<Listener> listener_;
  std::vector<v1::RankCard> cards_;  // by rank
  Id128 secret_;
};

}  // namespace

absl::StatusOr<MetRanks> MeetRanks(client::ProcessGroup& group,
                                   const std::string& coordinator_address,
                                   const BootstrapOptions& options) {
  return Bootstrap(group, options).Run(coordinator_address);
}

}  // namespace cohort::worker
