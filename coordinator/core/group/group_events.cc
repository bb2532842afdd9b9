// The events of the group, and their delivery to its watchers.
//
// If a thousand members leave, each of them gets an event for every other. To avoid a million
// messages, watchers get events at the end of the step, and events on which no member acts at once
// only every kNotifyInterval. A single event does not wait.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"

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

int64_t Group::Cost(const GroupEvent& event) {
  int64_t cost = sizeof(EventLog<GroupEvent>::Entry) + CostOf(event.member) +
                 CostOf(event.cause.member) + CostOf(event.cause.host) + CostOf(event.cause.detail);
  if (event.proposal.has_value()) {
    cost += CostOf(event.proposal->proposer) + CostOf(event.proposal->add) +
            BlockCost(event.proposal->remove.size() * sizeof(RankRange));
  }
  return cost;
}

void Group::Notify(Step& step, EventKind kind, const Member* member, const Cause& cause) {
  GroupEvent event;
  event.kind = kind;
  if (member != nullptr) {
    event.member = member->name;
    if (member->rank >= 0) event.rank = member->rank;
  }
  event.cause = cause;
  Publish(step, std::move(event));
}

void Group::NotifyOfProposal(Step& step, EventKind kind, const ViewProposal& view,
                             const Cause& cause) {
  GroupEvent event;
  event.kind = kind;
  event.member = view.proposer;
  event.proposal = view;
  event.cause = cause;
  Publish(step, std::move(event));
}

void Group::Publish(Step& step, GroupEvent event) {
  // The log must keep all events that a parked watcher has not got.
  if (undelivered_ >= std::min(kWatchBatch, std::max<int64_t>(shard_.limits.max_event_log, 1)))
    NotifyWatchers(step);
  event.revision = context_.NextNumber();
  event.generation = context_.generation;
  const int64_t revision = event.revision;
  step.LogEvent(context_.key, event);
  const Instant at = MayWait(event.kind) ? last_delivery_ + kNotifyInterval : step.now();
  const int64_t cost = Cost(event);
  // A full coordinator keeps only the events that watchers still have to get.
  const bool full = !shard_.tally.HasRoom(cost, shard_.limits.max_bytes_held, Share::kNew);
  const size_t kept = static_cast<size_t>(
      std::max<int64_t>(full ? std::min(kWatchBatch, shard_.limits.max_event_log)
                             : shard_.limits.max_event_log, 1));
  events_.Append(revision, std::move(event), std::numeric_limits<int64_t>::max());
  events_charge_.Add(cost);
  while (events_.size() > kept) {
    events_charge_.Add(-Cost(events_.oldest().event));
    events_.DropOldest();
  }
  ++undelivered_;
  if (at <= step.now()) {
    if (!notifies_at_step_end_) shard_.to_notify.push_back(this);
    notifies_at_step_end_ = true;
  } else if (notify_timer_ == 0) {
    notify_timer_ = shard_.timers.Schedule(at, [this](Step& s) {
      notify_timer_ = 0;
      NotifyWatchers(s);
    });
  }
}

void Group::NotifyWatchers(Step& step) {
  shard_.timers.Cancel(notify_timer_);
  notifies_at_step_end_ = false;
  undelivered_ = 0;
  delivered_revision_ = events_.newest();
  last_delivery_ = step.now();
  const auto waiting = std::exchange(watches_, {});
  for (const auto& [id, from] : waiting) {
    if (from >= delivered_revision_) {  // the watch has all events
      watches_.emplace(id, from);
      continue;
    }
    shard_.waits.Done(id);
    AnswerWatch(step, id, from);
  }
}

void Group::AnswerWatch(Step& step, CallId id, int64_t from, bool report) {
  auto batch = events_.Read(from, kWatchBatch);
  const bool closed = !batch.events.empty() && batch.events.back().kind == EventKind::kClosed;
  step.Answer(id, WatchGroupReply{std::move(batch.events), batch.revision, closed, report});
}

void Group::AskForReports(Step& step) {
  for (const auto& [name, member] : context_.roster.members()) {
    if (!member->live() || !member->reports || step.now() - member->asked_at < kAskInterval) {
      continue;
    }
    member->asked_at = step.now();
    member->report_due = true;
    const auto watch = watches_.find(member->watch_call);
    if (watch == watches_.end()) continue;  // the next step of its watch gets the request
    const int64_t from = watch->second;
    watches_.erase(watch);
    shard_.waits.Done(member->watch_call);
    member->report_due = false;
    AnswerWatch(step, member->watch_call, from, /*report=*/true);
  }
}

void Group::Answer(Step& step, Call& call, WatchGroupCall& body) {
  const int64_t from = body.from_revision == 0 ? events_.newest() : body.from_revision;
  Member* const member =
      body.reports ? context_.roster.BySession(call.caller.session) : nullptr;
  const bool report = member != nullptr && member->report_due;
  if (member != nullptr) member->reports = true;
  if (!events_.Covers(from)) {
    step.Fail(call.id, absl::OutOfRangeError(absl::StrCat(
                           "events of group ", context_.key.group, " after revision ", from,
                           " are not kept; read the group and watch from its revision ",
                           events_.newest())));
  } else if (from < delivered_revision_ || report) {
    if (report) member->report_due = false;
    AnswerWatch(step, call.id, from, report);
  } else {
    if (member != nullptr) member->watch_call = call.id;
    watches_[call.id] = from;
    shard_.waits.Park(call.id, this, step.now(), step.now() + call.wait);
  }
}

}  // namespace cohort::coordinator
