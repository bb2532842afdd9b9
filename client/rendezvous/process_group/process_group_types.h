// The options and results of a ProcessGroup.
#ifndef COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_TYPES_H_
#define COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_TYPES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/rank_set.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/report/report.h"

namespace cohort::client {

struct ProcessGroupOptions {
  ConnectionOptions connection;
  // When set, used in place of `connection`; several groups may share one.
  std::shared_ptr<Connection> shared_connection;

  std::string group;
  // Absent: the coordinator assigns one.
  std::optional<int> rank;
  int world_size = 0;
  // Not 0: the group is elastic, with at most world_size members.
  int min_world_size = 0;
  // Unique in the group, and the same after a restart of this member. Empty: "rank-N", or
  // "HOST-PID-RANDOM" without a rank.
  std::string member;
  // Not 0: the incarnation of this member, for a process that resumes its own membership. 0:
  // random.
  int64_t incarnation = 0;
  std::string host;  // empty: the host's name
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;
  // The same for all members.
  std::string parameters_digest;

  absl::Duration join_timeout = absl::Seconds(300);      // of Create, and Rejoin without a timeout
  absl::Duration timeout = absl::Seconds(300);           // for calls without their own
  absl::Duration data_expiration = absl::Seconds(3600);  // for unread objects
  absl::Duration lease = absl::Seconds(30);              // silence after which a member is lost
  // The silence after which a member is lost whose connection still stands, for example because its
  // process is stopped or stuck. Zero: four leases.
  absl::Duration attached_lease = absl::ZeroDuration();
  absl::Duration disconnect_grace = absl::Milliseconds(500);
  absl::Duration progress_timeout = absl::ZeroDuration();  // zero: off; see ReportProgress
  absl::Duration join_window = absl::Seconds(5);           // elastic groups
  bool share_fate = true;  // false: a lost member ends only the waits that need it

  // Called on the connection's thread, in order, for each event after joining; must not block.
  std::function<void(const GroupEvent&)> on_event;
  // Reports this member's tensor operations: with each renewal of the lease, and when
  // AdminClient::WhoIsMissing asks. Called on the connection's thread; must not block. Empty: the
  // member takes no part in tensor operations.
  std::function<TensorReport()> report_tensors;
  // Called about each second while Create waits, on the caller's thread, with the missing members.
  std::function<void(const MissingReport&)> on_waiting;
  // Ends Create, CreateAsync and Rejoin early, with its reason; the first two then leave no
  // membership behind. May be null.
  std::shared_ptr<Cancellation> cancellation;
};

struct RoundOptions {
  std::string name;               // separate names are separate sequences of rounds
  std::vector<RankRange> participants;  // empty: all
  absl::Duration timeout = absl::ZeroDuration();  // zero: 30 s for barriers and votes, else the group's
  std::string digest;             // the same for all; else all get FAILED_PRECONDITION at once
  // Not empty: the fault of this member's call. The round ends for all with
  // FAILED_PRECONDITION, which has this text and the member's rank. Not of votes.
  std::string refusal;
  // Called about each second while waiting, on the caller's thread (blocking calls only).
  std::function<void(const MissingReport&)> on_waiting;
  // Ends this member's wait early, with its reason. May be null.
  std::shared_ptr<Cancellation> cancellation;
  // If the round of this call has ended without this member, the same call joins the round where
  // the others are, within the same timeout (blocking calls only). See "Late members" above.
  bool catch_up = false;
};

struct RoundReport {
  int64_t number = 0;
  absl::Duration skew;    // from the first arrival to the last
  MissingReport missing;  // after DEADLINE_EXCEEDED
  // Not 0: the first round that had ended before this member came. Without catch_up it is `number`.
  int64_t missed_number = 0;
};

struct ReceivedObject {
  std::string bytes;
  int source = -1;
  int64_t sequence = 0;
};

enum class VoteOp { kAnd, kOr, kSum, kMin, kMax, kEqual };
struct VoteResult {
  int64_t value = 0;
  std::vector<RankRange> dissenting;  // kEqual
};

struct ViewResult {
  int64_t generation = 0;
  int rank = -1;  // -1: no longer a member
  int world_size = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_TYPES_H_
