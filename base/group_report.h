// The coordinator's reports about groups, waits and failures, as plain values. The coordinator
// fills them in; users include client/rendezvous/report/report.h. Durations are ages, unless their
// names say otherwise. The enums have the numbers of proto/cohort/v1.
#ifndef COHORT_BASE_GROUP_REPORT_H_
#define COHORT_BASE_GROUP_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/collective/collective.h"
#include "base/rank_set.h"

namespace cohort {

enum class GroupState { kForming = 1, kActive = 2, kBroken = 3, kClosed = 4 };
const char* GroupStateName(GroupState state);

enum class MemberState {
  kJoining = 1,
  kActive = 2,
  kSuspected = 3,
  kLost = 4,
  kLeft = 5,
  kCandidate = 6
};
const char* MemberStateName(MemberState state);

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
const char* CauseKindName(CauseKind kind);

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
inline constexpr int kEventKindCount = 14;
const char* EventKindName(EventKind kind);

struct MemberInfo {
  std::string name;
  int64_t incarnation_hash = 0;  // another one for each incarnation
  int rank = -1;
  MemberState state = MemberState::kJoining;
  std::string host;
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;
  absl::Duration last_heard;  // age
  bool attached = false;      // has an open attached stream: if silent, lost after attached_lease
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

struct MissingMember {
  int rank = 0;
  std::string member;  // empty: no member has this rank
  std::string host;
  std::optional<absl::Duration> last_heard;
  bool attached = false;  // has an open attached stream: if silent, lost after attached_lease
  std::string last_operation;
  absl::Duration last_operation_age;
  int64_t progress = 0;
  std::string progress_operation;
  absl::Duration progress_age;
};

// The members for which a wait waits, or waited. `missing` is complete; `details` has the first
// kDetails.
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

// One rank's operations on tensors: see proto/cohort/v1/group.proto.
struct TensorOperation {
  int64_t generation = 0;
  int64_t number = 0;  // the same on all ranks; 0: a transfer between some of them
  Collective collective = Collective::kUnknown;
  std::string state;                    // such as "running"
  int peer = -1;                        // the root, or the peer of a single transfer
  absl::Duration begun;                 // the time since it began
  std::optional<absl::Duration> ended;  // the time since it ended; absent: it is not over
};
struct TensorReport {
  bool moves_tensors = false;           // false: the rest is empty
  std::optional<TensorOperation> last;  // the latest one of all ranks that it has begun
  std::optional<TensorOperation> open;  // the oldest that this rank is in
  std::vector<RankRange> waits_for;     // the ranks for which it sleeps there, as far as known
};

// An operation on tensors that at least one rank is in.
struct TensorWait {
  std::string operation;  // such as all_reduce #42
  MissingReport missing;  // the ranks that have begun it, and those that have not
  absl::Duration age;     // since the first of those inside began
  std::vector<RankRange> inside;
  std::vector<RankRange> waited_for;  // the ranks for which those inside sleep
  std::string mismatch;  // such as "rank 2 called broadcast"; empty: all called the same
};

struct GroupStats {
  int64_t object_count = 0;
  int64_t unacknowledged_count = 0;
  int64_t open_round_count = 0;
  int64_t round_name_count = 0;
  int64_t waiter_count = 0;
  int64_t bytes_held = 0;
  int64_t barriers_released = 0;
  int64_t objects_expired = 0;
  int64_t key_count = 0;
};

struct OpenWait {
  std::string operation;
  MissingReport missing;
  absl::Duration age;
  absl::Duration remaining;
};

struct InitRank {
  int rank = 0;
  std::string member;
  std::string phase;
  std::string detail;
  absl::Duration age;
};
struct InitStatus {
  std::string name;
  std::vector<InitRank> ranks;
};

struct RankReport {
  int rank = 0;
  std::string member;
  std::string host;
  std::optional<absl::Duration> last_heard;
  std::optional<absl::Duration> reported;  // the age of `tensors`; absent: it has never reported
  TensorReport tensors;                    // its times are those of the report: add `reported`
};

struct ParkedCall {
  std::string group;
  std::string member;
  int rank = -1;
  std::string operation;
  absl::Duration age;
  absl::Duration remaining;
  std::vector<RankRange> waits_on;
};

}  // namespace cohort

#endif  // COHORT_BASE_GROUP_REPORT_H_
