// The coordinator's reports about groups, waits and failures, as plain values.
#ifndef COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_H_
#define COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/group_report.h"
#include "base/rank_set.h"

namespace cohort::client {

// Values that the coordinator fills in, too.
using cohort::CauseKind;
using cohort::CauseKindName;
using cohort::EventKind;
using cohort::EventKindName;
using cohort::GroupState;
using cohort::GroupStateName;
using cohort::GroupStats;
using cohort::InitRank;
using cohort::InitStatus;
using cohort::MemberState;
using cohort::MemberStateName;
using cohort::MissingMember;
using cohort::MissingReport;
using cohort::OpenWait;
using cohort::ParkedCall;
using cohort::RankReport;
using cohort::TensorOperation;
using cohort::TensorReport;
using cohort::TensorWait;
using cohort::ViewProposal;
using Member = MemberInfo;

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

// Details of an error besides its code and text. A default value: the error has none.
struct ErrorInfo {
  std::vector<RankRange> missing;  // the ranks that a wait missed
  std::string group;
  int64_t current_generation = 0;
  std::string operation;
  Cause cause;
};
ErrorInfo GetErrorInfo(const absl::Status& status);

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

struct GroupEvent {
  int64_t revision = 0;
  EventKind kind = EventKind::kJoined;
  int64_t generation = 0;
  std::string member;
  std::optional<int> rank;
  Cause cause;
  std::optional<ViewProposal> proposal;
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

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_H_
