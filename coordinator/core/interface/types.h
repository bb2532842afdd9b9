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
#include "base/collective/collective.h"
#include "base/rank_set.h"

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

enum class GroupState { kForming = 1, kActive = 2, kBroken = 3, kClosed = 4 };
enum class MemberState {
  kJoining = 1,
  kActive = 2,
  kSuspected = 3,
  kLost = 4,
  kLeft = 5,
  kCandidate = 6
};

enum class CauseKind {
  kNone = 0,
  kLeaseExpired = 1,
  kConnectionLost = 2,
  kEvicted = 3,
  kReplaced = 4,
  kLeft = 5,
  kReported = 6,
  kNoProgress = 7,
  kViewChanged = 8,
  kClosed = 9,
  kStaleGeneration = 10
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

struct MemberInfo {
  std::string name;
  int64_t incarnation = 0;
  int rank = -1;
  MemberState state = MemberState::kJoining;
  std::string host;
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;
  absl::Duration last_heard;  // age
  bool attached = false;      // an attached stream stands for it
  int64_t progress = 0;
  std::string progress_operation;
  absl::Duration progress_age;
};

struct ViewProposal {
  int64_t id = 0;
  std::string proposer;
  int64_t base_generation = 0;
  std::vector<RankRange> remove;
  std::vector<std::string> add;
  int world_size = 0;
};

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

struct MissingMember {
  int rank = 0;
  std::string member;
  std::string host;
  std::optional<absl::Duration> last_heard;
  bool attached = false;
  std::string last_operation;
  absl::Duration last_operation_age;
  int64_t progress = 0;
  std::string progress_operation;
  absl::Duration progress_age;
};

// The ranks that a wait waits for: complete as ranges, with details of the first kDetails.
struct MissingReport {
  static constexpr int kDetails = 64;
  int expected_count = 0;
  int arrived_count = 0;
  std::vector<RankRange> arrived;
  std::vector<RankRange> missing;
  std::vector<MissingMember> details;
  std::optional<int> first_rank;
  std::optional<int> last_rank;
  absl::Duration since_first;
  absl::Duration skew;
};

// One rank's report of its operations on tensors, like TensorReport of proto/cohort/v1/group.proto.
struct TensorOperation {
  int64_t generation = 0;
  int64_t number = 0;  // 0: a transfer between some of the ranks
  Collective collective = Collective::kUnknown;
  std::string state;
  int peer = -1;
  absl::Duration begun;                 // age at the time of the report
  std::optional<absl::Duration> ended;  // age at the time of the report; absent: it has not ended
};
struct TensorReport {
  bool moves_tensors = false;
  std::optional<TensorOperation> last;
  std::optional<TensorOperation> open;
  std::vector<RankRange> waits_for;
};

enum class EventKind {
  kJoined = 1,
  kSuspected = 2,
  kRecovered = 3,
  kLost = 4,
  kLeft = 5,
  kActive = 6,
  kBroken = 7,
  kViewProposed = 8,
  kViewCommitted = 9,
  kViewRefused = 10,
  kCandidate = 11,
  kDraining = 12,
  kClosed = 13,
  kErrorReported = 14
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

inline constexpr int kEventKindCount = 14;
const char* EventKindName(EventKind kind);

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
