// Numbered sends. A send that arrives before its predecessors is held here until they have arrived.
//
// A held send is not acknowledged and has no row in the journal: its caller repeats it after a
// restart. The last accepted number has a row, so that the numbers continue after a restart.
#ifndef COHORT_COORDINATOR_CORE_EXCHANGE_NUMBERED_SENDS_H_
#define COHORT_COORDINATOR_CORE_EXCHANGE_NUMBERED_SENDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/id128.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/members/group_context.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

// For texts that name a mailbox.
inline std::string TagText(const std::string& tag) {
  return tag.empty() ? "" : absl::StrCat(" tag \"", tag, "\"");
}

// A send that was not accepted yet.
struct HeldSend {
  CallId id = 0;
  SendCall call;  // without its value
  Id128 operation;
  uint64_t fingerprint = 0;
  Payload payload;
  int64_t blob = 0;  // the blob that the payload was; 0: it was inline
  Instant deadline;
  Instant since;
};

class NumberedSends final : public WaitOwner {
 public:
  explicit NumberedSends(GroupContext& group) : group_(group) {}
  ~NumberedSends();
  NumberedSends(const NumberedSends&) = delete;
  NumberedSends& operator=(const NumberedSends&) = delete;

  // Takes a send, which parks here until it is next. After an error the caller answers. Afterwards
  // the caller takes the sends that are next with TakeNext, one by one, and calls MarkSent for each
  // that its mailbox accepted. `mailbox` is any send to that mailbox. Precondition: the mailbox may
  // get sends.
  absl::Status Hold(Step& step, const Member& sender, HeldSend send);
  std::optional<HeldSend> TakeNext(int sender, const SendCall& mailbox);
  void MarkSent(Step& step, int sender, const SendCall& call);

  // Ends the held sends from and to `rank`; without a rank, all of them.
  void Abort(Step& step, std::optional<int> rank, const Cause& cause);
  // Forgets everything, for the next generation. Precondition: no call is parked.
  void Clear(Step& step);
  void Restore(const SendOrderRecord& record);

  void Describe(Instant now, std::vector<OpenWait>& waits) const;
  int64_t waiter_count() const { return static_cast<int64_t>(holding_.size()); }

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId id, ParkedCall& parked) const override;

 private:
  // The sends of one (destination, tag, source).
  struct Ordered {
    int64_t last = 0;                  // the last number that was accepted
    std::map<int64_t, HeldSend> held;  // by number, all larger than `last`
  };
  using OrderKey = std::tuple<int, std::string, int>;
  static OrderKey KeyOf(int sender, const SendCall& call) {
    return {call.destination, call.tag, sender};
  }
  // Removes a held send from every list.
  HeldSend Unhold(std::map<OrderKey, Ordered>::iterator ordered, int64_t order);

  GroupContext& group_;
  std::map<OrderKey, Ordered> ordered_;
  absl::flat_hash_map<CallId, std::pair<OrderKey, int64_t>> holding_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EXCHANGE_NUMBERED_SENDS_H_
