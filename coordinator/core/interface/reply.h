// The replies of the state machine. Each call gets exactly one reply, immediately or later.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_REPLY_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/types.h"

namespace cohort::coordinator {

struct EmptyReply {};

struct CreateGroupReply {
  int64_t generation = 0;
};
struct JoinReply {
  bool timed_out = false;
  Id128 session;
  int rank = -1;
  int world_size = 0;
  int64_t generation = 0;
  int64_t revision = 0;
  absl::Duration lease;
  MissingReport missing;
  // One object for all joins of a generation that asked for members.
  std::shared_ptr<const std::vector<MemberInfo>> members;
};
struct KeepAliveReply {
  absl::Duration lease;
  int64_t generation = 0;
  GroupState state = GroupState::kForming;
  Cause cause;
  std::optional<ViewProposal> proposal;
};
struct GetGroupReply {
  GroupInfo group;
};
struct ListGroupsReply {
  std::vector<GroupInfo> groups;  // without members, sorted by name
};
struct WatchGroupReply {
  std::vector<GroupEvent> events;
  int64_t revision = 0;  // the from_revision of the next step
  bool closed = false;   // the group is gone: this was the last step
  bool report = false;   // the member is asked for a report of its operations on tensors
};
struct ViewReply {  // of a proposal and of its acknowledgement
  enum class Outcome { kCommitted = 1, kRefused = 2, kTimedOut = 3 };
  Outcome outcome = Outcome::kCommitted;
  int64_t generation = 0;
  int rank = -1;
  int world_size = 0;
  Cause cause;
  MissingReport missing;
  int64_t revision = 0;
};
struct ReportErrorReply {
  Cause first_cause;
};

// The end of a round: one object, which the replies to all its members share.
struct RoundEnd {
  RoundKind kind = RoundKind::kBarrier;
  std::string name;
  RoundOutcome outcome = RoundOutcome::kReleased;
  int64_t number = 0;
  int64_t next_number = 0;
  MissingReport missing;
  std::string reason;
  absl::Duration skew;
  // The number had ended without this member before its call arrived.
  bool late = false;
  int64_t receipt = 0;
  std::vector<Payload> values;  // in order of rank
  int64_t vote = 0;
  RankSet dissenting;
  RankSet alive;
};
struct RoundReply {
  std::shared_ptr<const RoundEnd> end;
  // Whether this member gets `end->values` (all-gather: all; gather: the root).
  bool with_values = false;
  // This member's own value (broadcast, scatter).
  Payload own;
};
struct CancelRoundReply {
  int64_t number = 0;
};

struct SendReply {
  int64_t sequence = 0;
  bool consumed = false;
};
struct ReceiveReply {
  bool timed_out = false;
  Payload payload;
  int source = -1;
  int64_t sequence = 0;
  int64_t receipt = 0;
  MissingReport missing;
};
struct ExpireReply {
  int64_t object_count = 0;
  int64_t size_bytes = 0;
};
using StatsReply = GroupStats;
struct PutBlobReply {
  int64_t blob = 0;
};
struct GetBlobReply {
  Payload payload;
};

struct KeyValue {
  std::string key;
  Payload value;
  int64_t revision = 0;
  int64_t created_revision = 0;
  std::optional<absl::Duration> expires_in;
};
struct PutReply {
  bool written = false;
  int64_t revision = 0;
  std::optional<KeyValue> current;
};
struct QueueLength {
  std::string queue;
  int64_t length = 0;
};
struct GetReply {
  std::vector<KeyValue> values;
  std::vector<std::string> missing_keys;
  int64_t revision = 0;
  std::vector<QueueLength> queue_lengths;
};
struct RangeReply {
  std::vector<KeyValue> values;
  std::string next;
  int64_t count = 0;
  int64_t revision = 0;
};
struct DeleteReply {
  int64_t deleted_count = 0;
  int64_t revision = 0;
};
struct AddReply {
  int64_t value = 0;
  int64_t revision = 0;
};
struct AppendReply {
  int64_t size_bytes = 0;
  int64_t revision = 0;
};
struct QueuePushReply {
  int64_t sequence = 0;
  int64_t depth = 0;
};
struct QueuePopReply {
  bool found = false;
  Payload value;
  int64_t sequence = 0;
  int64_t receipt = 0;
};
struct KeyEvent {
  bool deleted = false;
  bool expired = false;
  KeyValue key_value;
};
struct WatchKeysReply {
  std::vector<KeyEvent> events;
  int64_t revision = 0;
};

struct FetchIdsReply {
  bool found = false;
  std::vector<std::string> ids;
  int publisher = -1;
  int64_t receipt = 0;
  MissingReport missing;
};

struct WhoIsMissingReply {
  std::string group;
  int64_t generation = 0;
  GroupState state = GroupState::kForming;
  Cause cause;
  int world_size = 0;
  std::vector<OpenWait> waits;
  std::vector<InitStatus> inits;
  std::vector<TensorWait> tensor_waits;
  std::vector<RankReport> ranks;
  RankSet unanswered;
  RankSet unknown;
};
struct DumpWaitsReply {
  std::vector<ParkedCall> calls;
  int64_t total_count = 0;
};
struct EvictReply {
  int rank = -1;
};

// The special members are in reply.cc. Each file that uses this variant would otherwise compile
// its own copy of them.
struct ReplyBody
    : std::variant<EmptyReply, CreateGroupReply, JoinReply, KeepAliveReply, GetGroupReply,
                   ListGroupsReply, WatchGroupReply, ViewReply, ReportErrorReply, RoundReply,
                   CancelRoundReply, SendReply, ReceiveReply, ExpireReply, StatsReply,
                   PutBlobReply, GetBlobReply, PutReply, GetReply, RangeReply, DeleteReply,
                   AddReply, AppendReply, QueuePushReply, QueuePopReply, WatchKeysReply,
                   FetchIdsReply, WhoIsMissingReply, DumpWaitsReply, EvictReply> {
  using variant::variant;
  ReplyBody();
  ReplyBody(const ReplyBody&);
  ReplyBody(ReplyBody&&) noexcept;
  ReplyBody& operator=(const ReplyBody&);
  ReplyBody& operator=(ReplyBody&&) noexcept;
  ~ReplyBody();
};

// The index of the alternative `T`.
template <typename T, size_t index = 0>
constexpr size_t ReplyIndex() {
  if constexpr (std::is_same_v<std::variant_alternative_t<index, ReplyBody::variant>, T>) {
    return index;
  } else {
    return ReplyIndex<T, index + 1>();
  }
}

// The details of ABORTED, NOT_FOUND and FAILED_PRECONDITION.
struct ErrorContext {
  std::string group;
  int64_t current_generation = 0;
  std::string operation;
  Cause cause;
};

struct Reply {
  CallId id = 0;
  absl::Status status;  // not OK: `body` is EmptyReply, and `context` may have details
  std::shared_ptr<const ErrorContext> context;
  ReplyBody body;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_REPLY_H_
