// Decides which replicas of a torchft job train together next. Pure: the time is an argument.
#ifndef COHORT_COORDINATOR_SERVICE_TORCHFT_QUORUM_DECISION_H_
#define COHORT_COORDINATOR_SERVICE_TORCHFT_QUORUM_DECISION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort::coordinator::torchft {

// The defaults are those of torchft's lighthouse.
struct QuorumOptions {
  int64_t min_replicas = 1;
  // How long a quorum waits for replicas that send heartbeats and have not asked for it.
  absl::Duration join_timeout = absl::Seconds(60);
  // A replica that was silent for so long does not count.
  absl::Duration heartbeat_timeout = absl::Seconds(5);
};

// A replica that asks for a quorum.
struct Candidate {
  Instant since;
  bool shrink_only = false;
  int64_t commit_failures = 0;
};

// All by replica id.
struct QuorumState {
  std::map<std::string, Instant> heartbeats;  // the last one of each
  std::map<std::string, Candidate> candidates;
  std::vector<std::string> previous;  // the members of the last quorum, sorted; empty: none yet
  // The coordinator has started again, and knows neither `previous` nor who is alive: heartbeats of
  // the others come until then.
  Instant not_before = absl::InfinitePast();
};

struct QuorumDecision {
  std::vector<std::string> members;  // sorted; empty: no quorum yet
  // The members differ from the previous ones, or one of them could not commit.
  bool needs_new_id = false;
  // Why there is no quorum yet. It names replicas that have not asked, or are silent.
  std::string reason;
  // Unless a replica calls, the decision stays the same until then.
  Instant valid_until = absl::InfiniteFuture();
};

// A replica is alive if its last heartbeat is younger than heartbeat_timeout. From `not_before` on,
// there is a quorum of the candidates that are alive
//   - at once, if all previous members are among them;
//   - else if they are at least min_replicas, and more than half of all that are alive, and either
//     all that are alive or the first of them has asked for join_timeout.
// If one of them is shrink_only, the quorum has previous members only.
QuorumDecision DecideQuorum(Instant now, const QuorumState& state, const QuorumOptions& options);

}  // namespace cohort::coordinator::torchft

#endif  // COHORT_COORDINATOR_SERVICE_TORCHFT_QUORUM_DECISION_H_
