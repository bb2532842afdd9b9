// The state that outlives the process, as rows. The state machine emits them, a journal keeps them,
// and Restore reads them.
//
// (group key, kind, id) is the key of a row. Writing a row replaces it. The journal keeps either
// all rows of a step or no row of it. Rows have no instants: an expiry is kept as a duration and
// begins again after a restart, so that nothing expires early.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_RECORD_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/types.h"

namespace cohort::coordinator {

enum class RecordKind {
  kGroup = 1,      // id ""
  kMember = 2,     // id: member name
  kObject = 3,     // id: sequence
  kRoundName = 4,  // id: kind and name
  kRoundEnd = 5,   // id: kind, name and number
  kKey = 6,        // id: the key
  kQueueItem = 7,  // id: queue and sequence
  kOperation = 8,  // id: operation id
  kUniqueId = 9,   // id: communicator name
  kSendOrder = 10,  // id: source, destination and tag
};

struct GroupRecord {
  GroupSpec spec;
  int64_t generation = 0;
  GroupState state = GroupState::kForming;
  Cause cause;  // without `at`
  int world_size = 0;
  std::string creator;  // the member whose Join brought the spec; empty: CreateGroup, or not known
};
struct MemberRecord {
  int64_t incarnation = 0;
  int rank = -1;  // -1: no rank yet (a candidate, or a member that waits for any rank)
  MemberState state = MemberState::kJoining;
  Id128 session;
  std::string name;
  // Caller::identity of its Join; empty: not known. Calls of other identities are refused.
  std::string identity;
  std::string host;
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;
};
struct ObjectRecord {
  int64_t generation = 0;
  int source = 0;
  int destination = 0;
  std::string tag;
  int64_t sequence = 0;
  absl::Duration expiration;
  Payload payload;
  // > 0: handed out, unacknowledged; < 0: expired, not yet reported to a reader
  int64_t receipt = 0;
  Id128 receive_operation;  // of the Receive to which it was handed out
};
struct RoundNameRecord {
  int64_t generation = 0;
  RoundKind kind = RoundKind::kBarrier;
  std::string name;
  int64_t ended_through = 0;
  RoundOutcome last_outcome = RoundOutcome::kReleased;
  std::string last_reason;
  int64_t last_released = 0;
  // Ranks that do not know yet how a number at or below `ended_through` ended.
  struct Late {
    int64_t number = 0;  // the first such number
    std::vector<RankRange> ranks;
    // How it ended; absent: not known any more.
    std::optional<RoundOutcome> outcome;
    RoundKind kind = RoundKind::kBarrier;
    std::string reason;
    std::vector<RankRange> arrived;
    std::vector<RankRange> missing;
    friend bool operator==(const Late& a, const Late& b) {
      return std::tie(a.number, a.ranks, a.outcome, a.kind, a.reason, a.arrived, a.missing) ==
             std::tie(b.number, b.ranks, b.outcome, b.kind, b.reason, b.arrived, b.missing);
    }
  };
  std::vector<Late> late;
};
// A round with values that some rank still has to read: an ended one (all-gather, gather, vote), or
// an open one whose root has been answered (broadcast, scatter).
struct RoundEndRecord {
  int64_t generation = 0;
  RoundKind kind = RoundKind::kBarrier;
  std::string name;
  int64_t number = 0;
  int root = -1;
  bool ended = true;
  std::vector<RankRange> participants;
  std::vector<Payload> values;
  int64_t receipt = 0;
  int64_t vote = 0;
  std::vector<RankRange> dissenting;
  std::vector<RankRange> alive;
};
struct KeyRecord {
  std::string key;
  Payload value;
  int64_t revision = 0;
  int64_t created_revision = 0;
  std::optional<absl::Duration> expiration;
  Id128 session;  // not empty: deleted with this session's member
};
struct QueueItemRecord {
  std::string queue;
  int64_t sequence = 0;
  Payload value;
  absl::Duration expiration;
  int64_t receipt = 0;
  Id128 pop_operation;
};
// The first answer to a mutation, kept for its repeats. It has numbers only, no values.
struct OperationRecord {
  Id128 id;
  int reply_kind = 0;  // index in ReplyBody
  int64_t first = 0;   // the reply's numbers, in the order of its struct
  int64_t second = 0;
  bool flag = false;
  int64_t number = 0;  // counts up in each window: the newer answer has the larger number
  uint64_t fingerprint = 0;  // of the request; 0: not known (a journal of an older version)
};
struct UniqueIdRecord {
  int64_t generation = 0;
  std::string name;
  std::vector<std::string> ids;
  int publisher = -1;
  int64_t receipt = 0;
};

// The numbered sends of one mailbox.
struct SendOrderRecord {
  int64_t generation = 0;
  int source = 0;
  int destination = 0;
  std::string tag;
  int64_t last = 0;  // the last number that was accepted
};

// The special members are in record.cc. Each file that uses this variant would otherwise compile
// its own copy of them.
struct RecordValue
    : std::variant<GroupRecord, MemberRecord, ObjectRecord, RoundNameRecord, RoundEndRecord,
                   KeyRecord, QueueItemRecord, OperationRecord, UniqueIdRecord, SendOrderRecord> {
  using variant::variant;
  RecordValue();
  RecordValue(const RecordValue&);
  RecordValue(RecordValue&&) noexcept;
  RecordValue& operator=(const RecordValue&);
  RecordValue& operator=(RecordValue&&) noexcept;
  ~RecordValue();
};

struct Record {
  GroupKey key;
  RecordKind kind = RecordKind::kGroup;
  std::string id;
  // Absent: delete the row or, with `whole_kind`, all rows of this group and kind.
  std::optional<RecordValue> value;
  bool whole_kind = false;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_RECORD_H_
