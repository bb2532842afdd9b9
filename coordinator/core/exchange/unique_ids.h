// Communicator ids of one generation. A member publishes them once, the members fetch them, and
// they are freed when all members have acknowledged them.
#ifndef COHORT_COORDINATOR_CORE_EXCHANGE_UNIQUE_IDS_H_
#define COHORT_COORDINATOR_CORE_EXCHANGE_UNIQUE_IDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/members/group_context.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

class UniqueIds final : public WaitOwner {
 public:
  explicit UniqueIds(GroupContext& group) : group_(group) {}
  ~UniqueIds();
  UniqueIds(const UniqueIds&) = delete;
  UniqueIds& operator=(const UniqueIds&) = delete;

  void Publish(Step& step, CallId id, const Member& member, const PublishIdsCall& call);
  void Fetch(Step& step, CallId id, const Member& member, absl::Duration wait, const FetchIdsCall& call);
  void Report(Step& step, CallId id, const Member& member, const ReportInitCall& call);
  void Acknowledge(Step& step, int rank, int64_t receipt);

  void MemberGone(Step& step, int rank, const Cause& cause);
  void Break(Step& step, const Cause& cause);
  // Forgets everything, for the next generation. Precondition: no call is parked.
  void Clear(Step& step);
  void Restore(const UniqueIdRecord& record);

  void Describe(Instant now, std::vector<OpenWait>& waits, std::vector<InitStatus>& inits) const;

  int64_t waiter_count() const { return static_cast<int64_t>(parked_.size()); }

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId id, ParkedCall& parked) const override;

 private:
  struct Waiter {
    CallId id = 0;
    int rank = 0;
    Instant since;
  };
  struct Progress {
    InitPhase phase = InitPhase::kGotId;
    std::string detail;
    Instant at;
  };
  struct Ids {
    // Empty: not published yet or, if `published`, freed.
    std::vector<std::string> ids;
    bool published = false;
    uint64_t digest = 0;  // of the ids, to recognise a repeat after they were freed
    int publisher = -1;
    int64_t receipt = 0;
    RankSet unacknowledged;
    std::vector<Waiter> waiters;
    std::map<int, Progress> progress;
    Charge charge;
  };

  // Null: there are too many names, and the call was answered with an error.
  Ids* FindOrAdd(Step& step, CallId id, const std::string& name);
  // Updates the charge, after ids, details or the name were added.
  void Recharge(const std::string& name, Ids& ids);
  void Give(Step& step, CallId id, const Ids& ids);
  MissingReport Missing(Instant now, const Ids& ids) const;

  GroupContext& group_;
  std::map<std::string, Ids> names_;
  absl::flat_hash_map<CallId, std::string> parked_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EXCHANGE_UNIQUE_IDS_H_
