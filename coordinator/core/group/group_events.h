// The events of one group, and their delivery to its watchers.
//
// If a thousand members leave, each of them gets an event for every other. To avoid a million
// messages, watchers get events at the end of the step, and events on which no member acts at once
// only every kNotifyInterval. A single event does not wait.
#ifndef COHORT_COORDINATOR_CORE_GROUP_GROUP_EVENTS_H_
#define COHORT_COORDINATOR_CORE_GROUP_GROUP_EVENTS_H_

#include <cstdint>
#include <map>

#include "coordinator/core/interface/call.h"
#include "coordinator/core/members/group_context.h"
#include "coordinator/core/runtime/event_log.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

class GroupEvents final : public WaitOwner {
 public:
  explicit GroupEvents(GroupContext& group);
  ~GroupEvents();
  GroupEvents(const GroupEvents&) = delete;
  GroupEvents& operator=(const GroupEvents&) = delete;

  // Adds an event. `member` is its subject; null: the event concerns no member.
  void Notify(Step& step, EventKind kind, const Member* member, const Cause& cause);
  void NotifyOfProposal(Step& step, EventKind kind, const ViewProposal& view, const Cause& cause);
  // Called at the end of a step, if the shard lists these events in `to_notify`.
  void NotifyWatchers(Step& step);

  // Answers with the events after `from_revision`, or parks the call until there are some.
  void Watch(Step& step, const Call& call, const WatchGroupCall& body);
  // Asks all members that take such questions for a report of their operations on tensors.
  void AskForReports(Step& step);

  // The revision of the last event.
  int64_t newest() const { return log_.newest(); }
  int64_t watch_count() const { return static_cast<int64_t>(watches_.size()); }

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId, ParkedCall& parked) const override { parked.operation = "watch of events"; }

 private:
  void Publish(Step& step, GroupEvent event);
  static int64_t Cost(const GroupEvent& event);
  // Answers with the events after `from`, or with a bookmark if no event is newer. The call must
  // not be parked any more.
  void AnswerWatch(Step& step, CallId id, int64_t from, bool report = false);

  GroupContext& group_;
  EventLog<GroupEvent> log_;
  std::map<CallId, int64_t> watches_;  // parked watches: their from_revision
  // The last revision that watchers got. Watchers that have it get the later events together.
  int64_t delivered_revision_;
  int64_t undelivered_ = 0;            // events after delivered_revision_
  bool notifies_at_step_end_ = false;  // these events are in the shard's to_notify
  Instant last_delivery_ = absl::InfinitePast();
  TimerId notify_timer_ = 0;
  Charge charge_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_GROUP_GROUP_EVENTS_H_
