// Changes of keys, for watches.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/store/store.h"
#include "coordinator/core/store/store_answers.h"

namespace cohort::coordinator {

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
                   WatchKeysCall&& call) {
  const EntryScope scope(*this, step);
  const int64_t from = call.from_revision == 0 ? revision() : call.from_revision;
  bool something = !history_.Covers(from);
  for (auto it = history_.After(from); !something && it != history_.end(); ++it) {
    something = absl::StartsWith(it->event.key, call.prefix);
  }
  if (something || wait <= absl::ZeroDuration()) {
    AnswerWatch(step, id, call.prefix, from);
  } else {
    Park(step, id, caller, wait, ParkedWatch{std::move(call.prefix)});
  }
}

int64_t Store::CostOfEvent(const Event& event) {
  return static_cast<int64_t>(sizeof(History::Entry)) + CostOf(event.key);
}

void Store::Emit(int64_t revision, Instant now, Event event) {
  event.at = now;
  for (auto& [length, by_prefix] : watches_) {
    if (length > event.key.size()) break;
    auto watching = by_prefix.find(event.key.substr(0, length));
    if (watching == by_prefix.end()) continue;
    // The watch reads from just before the first event that it has not seen; later events do not
    // change that.
    for (const CallId id : watching->second) woken_.emplace(id, history_.newest());
  }
  history_bytes_ += event.value.size();
  events_charge_.Add(CostOfEvent(event));
  history_.Append(revision, std::move(event), std::numeric_limits<int64_t>::max());
  while (history_.size() > 1 &&
         (static_cast<int64_t>(history_.size()) > shard_.limits.max_event_log ||
          history_bytes_ > kHistoryBytes)) {
    DropOldestEvent();
  }
}

void Store::DropOldestEvent() {
  history_bytes_ -= history_.oldest().event.value.size();
  events_charge_.Add(-CostOfEvent(history_.oldest().event));
  history_.DropOldest();
}

WatchKeysReply Store::ReadEvents(Instant now, const std::string& prefix,
                                 int64_t from_revision) const {
  WatchKeysReply reply;
  reply.revision = from_revision;
  int64_t bytes = 0;
  for (auto it = history_.After(from_revision); it != history_.end(); ++it) {
    const Event& event = it->event;
    if (absl::StartsWith(event.key, prefix)) {
      bytes += event.value.size();
      const bool full = static_cast<int>(reply.events.size()) == kWatchBatch ||
                        (bytes > std::min(kWatchBatchBytes, shard_.limits.max_inline_bytes) &&
                         !reply.events.empty());
      if (full) return reply;
      KeyValue shown{event.key, event.value, it->revision, event.created_revision};
      if (event.expires_at != absl::InfiniteFuture()) {
        shown.expires_in = std::max(event.expires_at - now, absl::ZeroDuration());
      }
      reply.events.push_back(KeyEvent{event.deleted, event.expired, std::move(shown)});
    }
    reply.revision = it->revision;
  }
  reply.revision = revision();
  return reply;
}

void Store::AnswerWatch(Step& step, CallId id, const std::string& prefix,
                        int64_t from_revision) const {
  if (history_.Covers(from_revision)) {
    step.Answer(id, ReadEvents(step.now(), prefix, from_revision));
    return;
  }
  step.Fail(id,
            absl::OutOfRangeError(absl::StrFormat(
                "changes after revision %d are not available: the oldest revision kept is %d, the "
                "newest %d; read the range, then watch from its revision",
                from_revision, history_.before_oldest(), revision())));
}

void Store::AnswerWoken(Step& step) {
  std::map<CallId, int64_t> woken;
  woken.swap(woken_);
  for (const auto& [id, from] : woken) {
    const Parked parked = Unpark(parked_.find(id));
    AnswerWatch(step, id, std::get<ParkedWatch>(parked.what).prefix, from);
  }
}

}  // namespace cohort::coordinator
