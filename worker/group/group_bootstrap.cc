#include "worker/group/group_bootstrap.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/status_macros.h"
#include "cohort/v1/rank_card.pb.h"
#include "worker/communicator/hierarchical/hierarchical_communicator.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/single/single_communicator.h"
#include "worker/communicator/socket/listener.h"
#include "worker/communicator/socket/socket_communicator.h"
#include "worker/group/host_formation.h"
#include "worker/group/host_identity.h"
#include "worker/group/supervisor.h"

namespace cohort::worker {
namespace {

// Of the cards, and of all that ranks then say to each other.
constexpr uint32_t kVersion = 1;
// Of the rounds through the coordinator.
constexpr char kCards[] = "cohort.bootstrap.cards";
constexpr char kReach[] = "cohort.bootstrap.reach";

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

  absl::StatusOr<FormedCommunicator> Run(const std::string& coordinator_address) {
    if (group_.world_size() == 1) {
      FormedCommunicator alone;
      alone.communicator = std::make_unique<SingleCommunicator>();
      alone.paths = {"self"};
      return alone;
    }
    COHORT_RETURN_IF_ERROR(ExchangeCards(coordinator_address));
    COHORT_ASSIGN_OR_RETURN(HostFormation formation, MeetOnHost());
    COHORT_ASSIGN_OR_RETURN(const Hosts hosts, ExchangeReach(formation));
    FormedCommunicator formed;
    formed.why_not = formation.why_not;
    formed.paths = PathsOf(formation);
    std::vector<HostLink> links = std::move(formation.links);
    if (hosts.size() == 1) {
      formed.communicator =
          std::make_unique<HostCommunicator>(std::move(*formation.memory), group_.rank());
    } else {
      COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> mesh, BySockets());
      if (hosts.size() == cards_.size()) {
        formed.communicator = std::move(mesh);
      } else {
        COHORT_ASSIGN_OR_RETURN(formed.communicator,
                                OnTwoLevels(std::move(mesh), hosts, std::move(formation)));
      }
    }
    if (links.empty()) return formed;
    COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Supervisor> supervisor, Supervisor::Shared());
    formed.watch = std::make_unique<HostWatch>(
        std::move(supervisor), std::move(links),
        [group = formed.communicator.get()](const std::string& cause) { group->Abort(cause); });
    return formed;
  }

 private:
  absl::Duration Left() const {
    return std::max(deadline_ - Clock::Steady().Now(), absl::Milliseconds(1));
  }

  absl::StatusOr<client::ObjectList> AllGather(const std::string& object, const char* name) {
    client::RoundOptions round;
    round.name = name;
    round.timeout = Left();
    return group_.AllGather(object, round);
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
    card.set_local_socket(local_listener_.name());
    card.set_heap_bytes(options_.heap->segment().size());
    card.set_address(listener_->address());
    COHORT_ASSIGN_OR_RETURN(*card.mutable_secret(), RandomSecret());
    card.set_host_name(HostName());
    card.set_pid(getpid());
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
      cards_.push_back(std::move(other));
    }
    secret_ = Id128::FromBytes(cards_[0].secret());
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
    return FormHost(options, deadline_);
  }

  // Which ranks share memory, as all of them say.
  absl::StatusOr<Hosts> ExchangeReach(const HostFormation& formation) {
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

  absl::StatusOr<std::unique_ptr<Communicator>> OnTwoLevels(std::unique_ptr<Communicator> mesh,
                                                            const Hosts& hosts,
                                                            HostFormation formation) {
    const auto own = std::find(formation.ranks.begin(), formation.ranks.end(), group_.rank());
    const auto index = static_cast<size_t>(own - formation.ranks.begin());
    bool even = true;
    for (const std::vector<int>& host : hosts) even = even && host.size() == hosts[0].size();
    Levels levels;
    if (formation.memory == nullptr) {
      levels.inside = std::make_unique<SingleCommunicator>();
    } else {
      formation.memory->names = formation.ranks;
      levels.inside =
          std::make_unique<HostCommunicator>(std::move(*formation.memory), static_cast<int>(index));
    }
    // Nobody listens for the mesh any more.
    COHORT_RETURN_IF_ERROR(mesh->Barrier(deadline_));
    if (even || index == 0) {
      std::vector<std::string> addresses;
      SocketOptions options;
      int place = 0;
      for (size_t host = 0; host < hosts.size(); ++host) {
        const int rank = hosts[host][index];
        if (rank == formation.ranks[index] && hosts[host] == formation.ranks) {
          place = static_cast<int>(host);
        }
        addresses.push_back(cards_[static_cast<size_t>(rank)].address());
        options.names.push_back(rank);
      }
      const Id128 secret = {secret_.high, secret_.low + 1 + index};
      COHORT_ASSIGN_OR_RETURN(
          levels.across,
          SocketCommunicator::Connect(place, *listener_, addresses, secret, options, deadline_));
    }
    levels.mesh = std::move(mesh);
    return std::make_unique<HierarchicalCommunicator>(std::move(levels), hosts);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> BySockets() {
    std::vector<std::string> addresses;
    for (const v1::RankCard& card : cards_) addresses.push_back(card.address());
    COHORT_ASSIGN_OR_RETURN(
        std::unique_ptr<Communicator> communicator,
        SocketCommunicator::Connect(group_.rank(), *listener_, addresses, secret_, {}, deadline_));
    return communicator;
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

absl::StatusOr<FormedCommunicator> FormCommunicator(client::ProcessGroup& group,
                                                    const std::string& coordinator_address,
                                                    const BootstrapOptions& options) {
  return Bootstrap(group, options).Run(coordinator_address);
}

}  // namespace cohort::worker
