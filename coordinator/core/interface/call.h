// The calls that the state machine takes. Requests arrive here decoded and checked for form (names,
// lengths, enums, signs). The state machine checks them against its state.
//
// Each struct mirrors the request of the same name in proto/cohort/v1, which documents it.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_CALL_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_CALL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "coordinator/core/interface/types.h"

namespace cohort::coordinator {

// The decoded Scope of a request.
struct Caller {
  GroupKey key;
  int64_t generation = 0;
  Id128 session;
  Id128 operation_id;
  std::vector<int64_t> acknowledged;
  // The name of the client, by its certificate for example; null: it is not known, because there is
  // no access policy.
  std::shared_ptr<const std::string> identity;
  // Pops and receives whose answers the caller has given up.
  std::vector<Id128> abandoned;
};

// The value in a request: bytes, or a blob uploaded before.
struct Value {
  std::string bytes;
  int64_t blob = 0;     // not 0: the blob's id; `bytes` is empty
  bool present = false; // whether the request had a value (which may be empty)
};

// --- groups
struct CreateGroupCall {
  GroupSpec spec;
};
struct JoinCall {
  std::string member;
  int64_t incarnation = 0;
  std::optional<int> rank;
  std::string host;
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;
  std::optional<GroupSpec> spec;
  bool with_members = false;
};
struct LeaveCall {
  std::string reason;
};
struct KeepAliveCall {
  int64_t progress = 0;
  std::string progress_operation;
  std::optional<TensorReport> tensors;
};
struct GetGroupCall {};
// One page of this shard's groups of the tenant, by name, after `after`.
struct ListGroupsCall {
  std::string after;
  int page_size = 100;
};
// One step of a watch: waits for events after `from_revision` (0: from now) and returns a batch.
struct WatchGroupCall {
  int64_t from_revision = 0;
  bool reports = false;  // the stream's reader answers WatchGroupReply::report
  bool attach = false;   // for the shell: the stream stands for the session (AttachCall)
};
// A stream that stands for the caller's session opened or, with `closed`, ended. If the coordinator
// ended it (`by_us`), the end says nothing about the member, and its lease goes on.
struct AttachCall {
  int64_t stream = 0;
  bool closed = false;
  bool by_us = false;
};
struct ProposeViewCall {
  std::vector<RankRange> remove;
  std::vector<std::string> add;
  bool drop_silent = false;
};
struct AckViewCall {
  int64_t proposal = 0;
  bool refuse = false;
  std::string reason;
};
struct ReportErrorCall {
  std::string detail;
  bool fatal = false;
  std::vector<RankRange> suspected;
};
struct CloseGroupCall {
  std::string reason;
};

// --- rounds: barrier, all-gather, gather, broadcast, scatter, vote, agree alive
struct EnterRoundCall {
  RoundKind kind = RoundKind::kBarrier;
  std::string name;
  int64_t number = 0;  // 0: the next number of this member
  std::vector<RankRange> participants;  // empty: all
  std::string digest;
  std::string refusal;        // not empty: the fault of the call
  int root = -1;              // gather, broadcast, scatter
  std::vector<Value> values;  // one; scatter's root: one per participant; readers: empty
  std::vector<int64_t> sizes;  // scatter's root with a single blob: the size of each value in it
  bool wait_consumed = false; // broadcast, scatter
  VoteOp op = VoteOp::kAnd;
  int64_t vote = 0;
};
struct CancelRoundCall {
  std::string name;  // of an open round that is no broadcast or scatter
  int64_t number = 0;
  std::string reason;
};

// --- objects
struct SendCall {
  int destination = 0;
  std::string tag;
  Value value;
  std::optional<absl::Duration> expiration;
  bool wait_consumed = false;
  int64_t order = 0;  // not 0: the object's number among the sends of this mailbox
};
struct ReceiveCall {
  std::optional<int> source;
  std::string tag;
};
struct ExpireCall {
  std::optional<absl::Duration> older_than;
};
struct StatsCall {};
// A complete upload, already checked.
struct PutBlobCall {
  std::string bytes;
  std::optional<uint32_t> crc32 = std::nullopt;  // of `bytes`, if the caller has computed it
};
struct GetBlobCall {
  int64_t blob = 0;
  int64_t offset = 0;  // for the shell, which sends the value from there on
};

// --- store
struct PutEntry {
  std::string key;
  std::string value;
  std::optional<int64_t> expected_revision;
  std::optional<std::string> expected_value;
};
struct PutCall {
  std::string key;
  std::string value;
  std::optional<absl::Duration> expiration;
  bool bind_to_session = false;
  std::optional<int64_t> expected_revision;
  std::optional<std::string> expected_value;
  std::vector<PutEntry> more;  // no key occurs twice
};
struct GetCall {
  std::vector<std::string> keys;
  bool wait = false;
  int64_t newer_than = 0;
  std::vector<std::string> queues;
  bool or_queue = false;
  // The reply has the keys without their values.
  bool keys_only = false;
  // The values together may be over max_inline_bytes.
  bool any_size = false;
  // Names a caller that has no session, for operators who ask who waits.
  std::string client;
};
struct RangeCall {
  std::string prefix;
  std::string after;
  int page_size = 100;
  bool keys_only = false;
  bool count_only = false;
  bool one_page = false;  // with keys_only: all keys, however many
};
struct DeleteCall {
  std::string key;
  bool prefix = false;
  bool queues = false;  // with prefix: drops the values of such queues as well
};
struct AddCall {
  std::string key;
  int64_t delta = 0;
};
struct AppendCall {
  std::string key;
  std::string value;
};
struct QueuePushCall {
  std::string queue;
  std::string value;
  std::optional<absl::Duration> expiration;
};
struct QueuePopCall {
  std::string queue;
};
// One step of a watch, like WatchGroupCall.
struct WatchKeysCall {
  std::string prefix;
  int64_t from_revision = 0;
};

// --- unique ids
struct PublishIdsCall {
  std::string name;
  std::vector<std::string> ids;
};
struct FetchIdsCall {
  std::string name;
};
struct ReportInitCall {
  std::string name;
  InitPhase phase = InitPhase::kGotId;
  std::string detail;
};

// --- questions and orders of operators
struct WhoIsMissingCall {
  bool ask = false;
};
struct DumpWaitsCall {};  // of one group
struct EvictCall {
  std::string member;
  std::string reason;
};

// The special members are in call.cc. Each file that uses this variant would otherwise compile
// its own copy of them.
struct CallBody
    : std::variant<CreateGroupCall, JoinCall, LeaveCall, KeepAliveCall, GetGroupCall,
                   ListGroupsCall, WatchGroupCall, AttachCall, ProposeViewCall, AckViewCall,
                   ReportErrorCall, CloseGroupCall, EnterRoundCall, CancelRoundCall, SendCall,
                   ReceiveCall, ExpireCall, StatsCall, PutBlobCall, GetBlobCall, PutCall, GetCall,
                   RangeCall, DeleteCall, AddCall, AppendCall, QueuePushCall, QueuePopCall,
                   WatchKeysCall, PublishIdsCall, FetchIdsCall, ReportInitCall, WhoIsMissingCall,
                   DumpWaitsCall, EvictCall> {
  using variant::variant;
  CallBody();
  CallBody(const CallBody&);
  CallBody(CallBody&&) noexcept;
  CallBody& operator=(const CallBody&);
  CallBody& operator=(CallBody&&) noexcept;
  ~CallBody();
};

struct Call {
  CallId id = 0;
  Caller caller;
  // How long it may be parked. The caller has applied defaults and caps.
  absl::Duration wait;
  // The memory that the service has charged to the whole account for this call. While the call
  // waits, the account of its tenant has it, too.
  int64_t service_bytes = 0;
  // Fresh random bits (joins turn them into a session).
  Id128 entropy;
  CallBody body;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_CALL_H_
