#include "coordinator/core/group/group_events.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

// The most events in one answer, and the most events that may wait for the watchers.
constexpr int64_t kWatchBatch = 256;
// The least time between two answers with events that can wait.
constexpr absl::Duration kNotifyInterval = absl::Milliseconds(50);
// Operators that ask for reports within this time share the reports of the first question.
constexpr absl::Duration kAskInterval = absl::Milliseconds(200);

// Whether an event can wait, because every member may cause one at the same time.
bool MayWait(EventKind kind) {
  switch (kind) {
    case EventKind::kJoined:
    case EventKind::kCandidate:
    case EventKind::kSuspected:
    case EventKind::kRecovered:
    case EventKind::kLost:
    case EventKind::kLeft:
    case EventKind::kErrorReported:
      return true;
    default:
      return false;
  }
}

}  // namespace

GroupEvents::GroupEvents(GroupContext& group)
    : group_(group),
      log_(group.last_number),
      delivered_revision_(group.last_number),
      charge_(*group.tally, MemoryKind::kEvents) {}

GroupEvents::~GroupEvents() {
  group_.shard.timers.Cancel(notify_timer_);
  for (const auto& [id, revision] : watches_) group_.shard.waits.Done(id);
}

int64_t GroupEvents::Cost(const GroupEvent& event) {
  int64_t cost = sizeof(EventLog<GroupEvent>::Entry) + CostOf(event.member) +
                 CostOf(event.cause.member) + CostOf(event.cause.host) + CostOf(event.cause.detail);
  if (event.proposal.has_value()) {
    cost += CostOf(event.proposal->proposer) + CostOf(event.proposal->add) +
            BlockCost(event.proposal->remove.size() * sizeof(RankRange));
  }
  return cost;
}

void GroupEvents::Notify(Step& step, EventKind kind, const Member* member, const Cause& cause) {
  GroupEvent event;
  event.kind = kind;
  if (member != nullptr) {
    event.member = member->name;
    if (member->rank >= 0) event.rank = member->rank;
  }
  event.cause = cause;
  Publish(step, std::move(event));
}

void GroupEvents::NotifyOfProposal(Step& step, EventKind kind, const ViewProposal& view,
                                   const Cause& cause) {
  GroupEvent event;
  event.kind = kind;
  event.member = view.proposer;
  event.proposal = view;
  event.cause = cause;
  Publish(step, std::move(event));
}

void GroupEvents::Publish(Step& step, GroupEvent event) {
  const Limits& limits = group_.shard.limits;
  // The log must keep all events that a parked watcher has not got.
  if (undelivered_ >= std::min(kWatchBatch, std::max<int64_t>(limits.max_event_log, 1)))
    NotifyWatchers(step);
  event.revision = group_.NextNumber();
  event.generation = group_.generation;
  const int64_t revision = event.revision;
  step.LogEvent(group_.key, event);
  const Instant at = MayWait(event.kind) ? last_delivery_ + kNotifyInterval : step.now();
  const int64_t cost = Cost(event);
  // A full coordinator keeps only the events that watchers still have to get.
  const bool full = !group_.tally->HasRoom(cost, limits, Share::kNew);
  const size_t kept = static_cast<size_t>(std::max<int64_t>(
      full ? std::min(kWatchBatch, limits.max_event_log) : limits.max_event_log, 1));
  log_.Append(revision, std::move(event), std::numeric_limits<int64_t>::max());
  charge_.Add(cost);
  while (log_.size() > kept) {
    charge_.Add(-Cost(log_.oldest().event));
    log_.DropOldest();
  }
  ++undelivered_;
  if (at <= step.now()) {
    if (!notifies_at_step_end_) group_.shard.to_notify.push_back(this);
    notifies_at_step_end_ = true;
  } else if (notify_timer_ == 0) {
    notify_timer_ = group_.shard.timers.Schedule(at, [this](Step& s) {
      notify_timer_ = 0;
      NotifyWatchers(s);
    });
  }
}

void GroupEvents::NotifyWatchers(Step& step) {
  group_.shard.timers.Cancel(notify_timer_);
  notifies_at_step_end_ = false;
  undelivered_ = 0;
  delivered_revision_ = log_.newest();
  last_delivery_ = step.now();
  const auto waiting = std::exchange(watches_, {});
  for (const auto& [id, from] : waiting) {
    if (from >= delivered_revision_) {  // the watch has all events
      watches_.emplace(id, from);
      continue;
    }
    group_.shard.waits.Done(id);
    AnswerWatch(step, id, from);
  }
}

void GroupEvents::AnswerWatch(Step& step, CallId id, int64_t from, bool report) {
  auto batch = log_.Read(from, kWatchBatch);
  const bool closed = !batch.events.empty() && batch.events.back().kind == EventKind::kClosed;
  step.Answer(id, WatchGroupReply{std::move(batch.events), batch.revision, closed, report});
}

void GroupEvents::AskForReports(Step& step) {
  for (const auto& [name, member] : group_.roster.members()) {
    if (!member->live() || !member->reports || step.now() - member->asked_at < kAskInterval) {
      continue;
    }
    member->asked_at = step.now();
    member->report_due = true;
    const auto watch = watches_.find(member->watch_call);
    if (watch == watches_.end()) continue;  // the next step of its watch gets the request
    const int64_t from = watch->second;
    watches_.erase(watch);
    group_.shard.waits.Done(member->watch_call);
    member->report_due = false;
    AnswerWatch(step, member->watch_call, from, /*report=*/true);
  }
}

void GroupEvents::Watch(Step& step, const Call& call, const WatchGroupCall& body) {
  const int64_t from = body.from_revision == 0 ? log_.newest() : body.from_revision;
  Member* const member = body.reports ? group_.roster.BySession(call.caller.session) : nullptr;
  const bool report = member != nullptr && member->report_due;
  if (member != nullptr) member->reports = true;
  if (!log_.Covers(from)) {
    step.Fail(call.id,
              absl::OutOfRangeError(absl::StrCat(
                  "events of group ", group_.key.group, " after revision ", from,
                  " are not kept; read the group and watch from its revision ", log_.newest())));
  } else if (from < delivered_revision_ || report) {
    if (report) member->report_due = false;
    AnswerWatch(step, call.id, from, report);
  } else {
    if (member != nullptr) member->watch_call = call.id;
    watches_[call.id] = from;
    group_.shard.waits.Park(call.id, this, *group_.tally, step.now(), step.now() + call.wait);
  }
}

void GroupEvents::Forget(Step&, CallId id) { watches_.erase(id); }

void GroupEvents::TimeOut(Step& step, CallId id) {
  auto it = watches_.find(id);
  if (it == watches_.end()) return;
  const int64_t from = it->second;
  watches_.erase(it);
  AnswerWatch(step, id, from);
}

}  // namespace cohort::coordinator
