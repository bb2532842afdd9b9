// The coordinator's reports about groups, waits and failures, as plain values.
#ifndef COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_H_
#define COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/collective/collective.h"
#include "base/rank_set.h"

namespace cohort::client {

enum class CauseKind {
  kNone,
  kLeaseExpired,
  kConnectionLost,
  kEvicted,
  kReplaced,
  kLeft,
  kReported,
  kNoProgress,
  kViewChanged,
  kClosed,
  kStaleGeneration
};
const char* CauseKindName(CauseKind kind);

// Why a generation or an operation ended; `member` and `rank` name the culprit where there is one.
struct Cause {
  CauseKind kind = CauseKind::kNone;
  std::string member;
  std::optional<int> rank;
  std::string host;
  std::string detail;
  int64_t generation = 0;
  absl::Duration age;
};

// Details of an error besides its code and text. Empty if the coordinator sent none.
struct ErrorInfo {
  std::string group;
  int64_t current_generation = 0;
  std::string operation;
  Cause cause;
};
ErrorInfo GetErrorInfo(const absl::Status& status);

struct MissingMember {
  int rank = 0;
  std::string member;  // empty: no member has this rank
  std::string host;
  std::optional<absl::Duration> last_heard;
  bool attached = false;  // a stream stands for it: it is lost after the attached lease
  std::string last_operation;
  absl::Duration last_operation_age;
  int64_t progress = 0;
  std::string progress_operation;
  absl::Duration progress_age;
};

// The members for which a wait waits, or waited. `missing` is complete; `details` has the first 64.
struct MissingReport {
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
// One line: "17 of 1000 missing: ranks 3,7-9 (worker-3 on host-a, last heard 0.4s ago; ...)".
std::string ToString(const MissingReport& report);

enum class AwayKind {
  kUnreachable,  // there is no connection to it
  kSilent,       // there is a connection, and no answer
  kDraining      // it refuses new calls
};
// Why the coordinator does not serve a call, while the call goes on trying.
struct AwayReport {
  AwayKind kind = AwayKind::kUnreachable;
  std::string address;
  std::string detail;        // the last error; may be empty
  absl::Duration remaining;  // until the call gives up
};
// One line: "the coordinator at 10.0.0.7:7700 cannot be reached (Connection refused)".
std::string ToString(const AwayReport& report);

enum class GroupState { kForming, kActive, kBroken, kClosed };
const char* GroupStateName(GroupState state);
enum class MemberState { kJoining, kActive, kSuspected, kLost, kLeft, kCandidate };
const char* MemberStateName(MemberState state);

struct Member {
  std::string name;
  int64_t incarnation = 0;
  int rank = -1;
  MemberState state = MemberState::kJoining;
  std::string host;
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;
  absl::Duration last_heard;
  bool attached = false;  // a stream stands for it: it is lost after the attached lease
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
  int min_members = 0;
  int max_members = 0;
  int world_size = 0;
  int64_t revision = 0;
  absl::Duration lease;
  std::vector<Member> members;  // members by rank, then candidates; not filled by ListGroups
  Cause cause;                  // when broken
  int64_t bytes_held = 0;
  int64_t waiter_count = 0;
  std::optional<ViewProposal> proposal;
};

enum class EventKind {
  kJoined,
  kSuspected,
  kRecovered,
  kLost,
  kLeft,
  kActive,
  kBroken,
  kViewProposed,
  kViewCommitted,
  kViewRefused,
  kCandidate,
  kDraining,
  kClosed,
  kErrorReported
};
const char* EventKindName(EventKind kind);

struct GroupEvent {
  int64_t revision = 0;
  EventKind kind = EventKind::kJoined;
  int64_t generation = 0;
  std::string member;
  std::optional<int> rank;
  Cause cause;
  std::optional<ViewProposal> proposal;
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
// An operation on tensors that at least one rank is in.
struct TensorWait {
  std::string operation;  // such as all_reduce #42
  MissingReport missing;  // the ranks that have begun it, and those that have not
  absl::Duration age;     // since the first of those inside began
  std::vector<RankRange> inside;
  std::vector<RankRange> waited_for;  // the ranks for which those inside sleep
  std::string mismatch;  // such as "rank 2 called broadcast"; empty: all called the same
};
struct RankReport {
  int rank = 0;
  std::string member;
  std::string host;
  std::optional<absl::Duration> last_heard;
  std::optional<absl::Duration> reported;  // the age of `tensors`; absent: it has never reported
  TensorReport tensors;                    // its times are those of the report: add `reported`
};
struct WhoIsMissingReport {
  std::string group;
  int64_t generation = 0;
  GroupState state = GroupState::kForming;
  Cause cause;
  int world_size = 0;
  std::vector<OpenWait> waits;
  std::vector<InitStatus> inits;
  // Operations on tensors, as the ranks report them.
  bool covers_tensors = false;  // false: the coordinator is too old for it
  std::vector<TensorWait> tensor_waits;
  std::vector<RankReport> ranks;  // those that the following and `tensor_waits` name; the first 64
  std::vector<RankRange> unanswered;  // were asked, and have not reported since
  std::vector<RankRange> unknown;     // have never reported
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

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_H_
