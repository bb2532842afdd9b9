// The types that calls, replies and records of the state machine share.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_TYPES_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_TYPES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/group_report.h"

namespace cohort::coordinator {

// Identifies one call between the state machine and its shell; never reused, never 0.
using CallId = uint64_t;

// A namespace: tenant and group. An empty group is the tenant's own store.
struct GroupKey {
  std::string tenant;
  std::string group;
  friend bool operator==(const GroupKey& a, const GroupKey& b) {
    return a.tenant == b.tenant && a.group == b.group;
  }
  friend bool operator<(const GroupKey& a, const GroupKey& b) {
    return a.tenant != b.tenant ? a.tenant < b.tenant : a.group < b.group;
  }
  template <typename H>
  friend H AbslHashValue(H hash, const GroupKey& key) {
    return H::combine(std::move(hash), key.tenant, key.group);
  }
};

enum class Fate { kShare = 1, kReport = 2 };

struct GroupSpec {
  int min_members = 0;
  int max_members = 0;
  Fate fate = Fate::kShare;
  absl::Duration lease = absl::Seconds(30);
  absl::Duration attached_lease = absl::ZeroDuration();  // zero: four leases
  absl::Duration disconnect_grace = absl::Milliseconds(500);
  absl::Duration data_expiration = absl::Seconds(3600);
  absl::Duration progress_timeout = absl::ZeroDuration();  // zero: off
  absl::Duration join_window = absl::Seconds(5);
  std::string parameters_digest;
  std::map<std::string, std::string> labels;

  bool fixed() const { return min_members == max_members; }
  // A silent member with an attached stream is lost after this time.
  absl::Duration AttachedLease() const {
    return attached_lease > absl::ZeroDuration() ? attached_lease : lease * 4;
  }
};


struct Cause {
  CauseKind kind = CauseKind::kNone;
  std::string member;
  std::optional<int> rank;
  std::string host;
  std::string detail;
  int64_t generation = 0;
  Instant at;

  bool empty() const { return kind == CauseKind::kNone; }
  // One sentence: the member, the event and the generation.
  std::string ToString() const;
  // The known parts of "member w0 (rank 0) on host-a"; empty: no member caused it.
  std::string Culprit() const;
};

// The beginning of `text`, at most `max_bytes` long; does not cut a UTF-8 character.
std::string CutText(const std::string& text, size_t max_bytes);

struct GroupInfo {
  std::string name;
  int64_t generation = 0;
  GroupState state = GroupState::kForming;
  GroupSpec spec;
  int world_size = 0;
  int64_t revision = 0;
  std::vector<MemberInfo> members;
  Cause cause;
  int64_t bytes_held = 0;
  int64_t waiter_count = 0;
  std::optional<ViewProposal> proposal;
};

struct GroupEvent {
  int64_t revision = 0;
  EventKind kind = EventKind::kJoined;
  int64_t generation = 0;
  std::string member;
  std::optional<int> rank;
  Cause cause;
  std::optional<ViewProposal> proposal;
};

enum class RoundKind {
  kBarrier = 1,
  kAllGather = 2,
  kGather = 3,
  kBroadcast = 4,
  kScatter = 5,
  kVote = 6,
  kAgreeAlive = 7
};
const char* RoundKindName(RoundKind kind);

enum class RoundOutcome { kReleased = 1, kTimedOut = 2, kCancelled = 3, kMismatch = 4 };
enum class VoteOp { kAnd = 1, kOr = 2, kSum = 3, kMin = 4, kMax = 5, kEqual = 6 };
enum class InitPhase { kGotId = 1, kCallingInit = 2, kDone = 3, kFailed = 4 };
const char* InitPhaseName(InitPhase phase);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_TYPES_H_
