#include "coordinator/service/torchft/quorum_decision.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/text/printable.h"

namespace cohort::coordinator::torchft {
namespace {

constexpr size_t kNamedReplicas = 8;

std::string Age(Instant now, Instant then) {
  return absl::StrFormat("%.1fs ago", absl::ToDoubleSeconds(now - then));
}

std::string Replicas(size_t count) {
  return absl::StrCat(count, count == 1 ? " replica" : " replicas");
}

class Decider {
 public:
  Decider(Instant now, const QuorumState& state, const QuorumOptions& options)
      : now_(now), state_(state), options_(options) {
    for (const auto& [replica, heard] : state.heartbeats) {
      if (!IsAlive(heard)) continue;
      ++alive_;
      KeepUntil(heard + options.heartbeat_timeout);
      const auto candidate = state.candidates.find(replica);
      if (candidate == state.candidates.end()) continue;
      members_.push_back(replica);
      shrink_only_ |= candidate->second.shrink_only;
      first_ = std::min(first_, candidate->second.since);
    }
    candidates_ = members_.size();
  }

  QuorumDecision Decide() {
    if (now_ < state_.not_before) {
      KeepUntil(state_.not_before);
      return NotYet(absl::StrCat("the coordinator has started again, and waits ",
                                 absl::FormatDuration(options_.heartbeat_timeout),
                                 " (heartbeat_timeout) for heartbeats"));
    }
    const bool all_previous =
        !state_.previous.empty() && std::includes(members_.begin(), members_.end(),
                                                  state_.previous.begin(), state_.previous.end());
    if (shrink_only_ && !state_.previous.empty()) KeepPreviousMembers();
    if (!all_previous) {
      if (static_cast<int64_t>(candidates_) < options_.min_replicas) {
        return NotYet(absl::StrCat(Replicas(candidates_), " of at least ", options_.min_replicas,
                                   " (min_replicas) asked for a quorum"));
      }
      if (candidates_ <= alive_ / 2) {
        return NotYet(absl::StrCat(candidates_, " of ", Replicas(alive_),
                                   " with heartbeats asked for a quorum, which needs more than "
                                   "half of them"));
      }
      if (candidates_ < alive_ && now_ - first_ < options_.join_timeout) {
        KeepUntil(first_ + options_.join_timeout);
        return NotYet(absl::StrCat(candidates_, " of ", Replicas(alive_),
                                   " with heartbeats asked for a quorum, which waits ",
                                   absl::FormatDuration(options_.join_timeout),
                                   " (join_timeout) for the others"));
      }
    }
    if (members_.empty()) {
      return NotYet("shrink_only admits previous members alone, and none of them asked");
    }
    QuorumDecision decision;
    decision.needs_new_id = members_ != state_.previous || HasCommitFailure();
    decision.members = std::move(members_);
    return decision;
  }

 private:
  bool IsAlive(Instant heard) const { return now_ - heard < options_.heartbeat_timeout; }
  void KeepUntil(Instant instant) { valid_until_ = std::min(valid_until_, instant); }

  bool IsPrevious(const std::string& replica) const {
    return std::binary_search(state_.previous.begin(), state_.previous.end(), replica);
  }

  void KeepPreviousMembers() {
    members_.erase(std::remove_if(members_.begin(), members_.end(),
                                  [&](const std::string& id) { return !IsPrevious(id); }),
                   members_.end());
  }

  bool HasCommitFailure() const {
    return std::any_of(members_.begin(), members_.end(), [&](const std::string& replica) {
      return state_.candidates.at(replica).commit_failures > 0;
    });
  }

  // Names the replicas that are alive, were members or ask, unless they ask and are alive.
  std::string Missing() const {
    std::vector<std::string> named;
    size_t count = 0;
    for (const auto& [replica, heard] : state_.heartbeats) {
      const bool alive = IsAlive(heard);
      const bool asks = state_.candidates.count(replica) > 0;
      if (alive ? asks : !asks && !IsPrevious(replica)) continue;
      if (++count > kNamedReplicas) continue;
      named.push_back(absl::StrCat(Printable(replica), " (", asks ? "it asked, but its " : "its ",
                                   "last heartbeat came ", Age(now_, heard), ")"));
    }
    if (count == 0) return "no other replica is known";
    std::string text = absl::StrCat("missing: ", absl::StrJoin(named, ", "));
    if (count > kNamedReplicas) absl::StrAppend(&text, " and ", count - kNamedReplicas, " more");
    return text;
  }

  QuorumDecision NotYet(absl::string_view why) const {
    QuorumDecision decision;
    decision.reason = absl::StrCat(why, "; ", Missing());
    decision.valid_until = valid_until_;
    return decision;
  }

  const Instant now_;
  const QuorumState& state_;
  const QuorumOptions& options_;
  size_t alive_ = 0;
  size_t candidates_ = 0;  // that are alive
  std::vector<std::string> members_;
  bool shrink_only_ = false;
  Instant first_ = absl::InfiniteFuture();
  Instant valid_until_ = absl::InfiniteFuture();
};

}  // namespace

QuorumDecision DecideQuorum(Instant now, const QuorumState& state, const QuorumOptions& options) {
  return Decider(now, state, options).Decide();
}

}  // namespace cohort::coordinator::torchft
