// The facts about a group that its parts (rounds, mailboxes, unique ids) share, and their errors.
#ifndef COHORT_COORDINATOR_CORE_MEMBERS_GROUP_CONTEXT_H_
#define COHORT_COORDINATOR_CORE_MEMBERS_GROUP_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/members/roster.h"
#include "coordinator/core/runtime/shard.h"
#include "coordinator/core/runtime/step.h"

namespace cohort::coordinator {

struct GroupContext {
  GroupContext(Shard& s, GroupKey k)
      : shard(s),
        key(std::move(k)),
        tally(s.tallies.Of(key.tenant)),
        ledger(std::make_shared<ByteLedger>(tally->account())),
        roster(*tally),
        last_number(s.FirstNumber()) {}

  Shard& shard;
  const GroupKey key;
  const std::shared_ptr<Tally> tally;  // of the tenant
  const std::shared_ptr<ByteLedger> ledger;
  GroupSpec spec;
  int64_t generation = 0;
  int world_size = 0;
  Roster roster;
  // The last number given out as a sequence, revision, blob or proposal. It only grows.
  int64_t last_number;

  int64_t NextNumber() { return ++last_number; }

  // Why the member with this rank cannot act any more, so that waits for it end; null: it can.
  const Cause* WhyGone(int rank) const {
    auto it = gone.find(rank);
    return it == gone.end() ? nullptr : &it->second;
  }
  // The ranks that left, or were lost without breaking the generation.
  std::map<int, Cause> gone;

  std::shared_ptr<const ErrorContext> Explain(std::string operation, const Cause& cause) const {
    auto context = std::make_shared<ErrorContext>();
    context->group = key.group;
    context->current_generation = generation;
    context->operation = std::move(operation);
    context->cause = cause;
    return context;
  }
  absl::Status Aborted(absl::string_view operation, const Cause& cause) const {
    return absl::AbortedError(absl::StrCat("group ", key.group, ", ", cause.ToString(),
                                           operation.empty() ? "" : "; in ", operation));
  }
  // Answers the call with ABORTED and its details.
  void Abort(Step& step, CallId id, const std::string& operation, const Cause& cause) const {
    step.Fail(id, Aborted(operation, cause), Explain(operation, cause));
  }
  // Whether a value of `bytes` bytes, with `around` bytes of structures, may be held. Errors:
  // RESOURCE_EXHAUSTED (names the limit).
  absl::Status CheckRoom(MemoryKind kind, int64_t bytes, int64_t around) const {
    if (ledger->held() + bytes > shard.limits.max_group_bytes_held) {
      return absl::ResourceExhaustedError(
          absl::StrCat("group ", key.group, " holds ", ledger->held(), " bytes; ", bytes,
                       " more pass max_group_bytes_held (", shard.limits.max_group_bytes_held, ")"));
    }
    return tally->CheckRoom(kind, bytes + ByteLedger::kValueCost + around, shard.limits,
                            Share::kNew);
  }
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_MEMBERS_GROUP_CONTEXT_H_
