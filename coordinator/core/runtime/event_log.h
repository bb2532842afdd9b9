// The last events, for readers that ask for all events since a revision.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_EVENT_LOG_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_EVENT_LOG_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace cohort::coordinator {

// A ring of events with strictly growing revisions. It drops the oldest events first and remembers
// the last revision that it dropped, so that a reader learns that it missed events.
template <typename Event>
class EventLog {
 public:
  struct Entry {
    int64_t revision = 0;
    Event event;
  };
  using Iterator = typename std::deque<Entry>::const_iterator;

  enum class Outcome {
    kEvents,     // there are events
    kNone,       // the reader has seen all events
    kCompacted,  // the reader missed dropped events, or its revision is not one of this log
  };
  struct Batch {
    Outcome outcome = Outcome::kNone;
    std::vector<Event> events;
    int64_t revision = 0;  // read from here next
  };

  // An empty log that begins after `revision`.
  explicit EventLog(int64_t revision) : before_oldest_(revision), newest_(revision) {}

  // Precondition: revision > newest(). Keeps the last `max_events` (at least one).
  void Append(int64_t revision, Event event, int64_t max_events) {
    entries_.push_back(Entry{revision, std::move(event)});
    newest_ = revision;
    const size_t kept = static_cast<size_t>(std::max<int64_t>(max_events, 1));
    while (entries_.size() > kept) DropOldest();
  }

  // Precondition: not empty.
  void DropOldest() {
    before_oldest_ = entries_.front().revision;
    entries_.pop_front();
  }

  // Whether the log has all events after `revision`.
  bool Covers(int64_t revision) const { return revision >= before_oldest_ && revision <= newest_; }

  // The events after `revision`, to end().
  Iterator After(int64_t revision) const {
    return std::upper_bound(entries_.begin(), entries_.end(), revision,
                            [](int64_t r, const Entry& entry) { return r < entry.revision; });
  }
  Iterator end() const { return entries_.end(); }

  // Up to `max` events after `from_revision`, oldest first.
  Batch Read(int64_t from_revision, size_t max) const {
    Batch batch;
    batch.revision = from_revision;
    if (!Covers(from_revision)) {
      batch.outcome = Outcome::kCompacted;
      return batch;
    }
    for (Iterator it = After(from_revision); it != end() && batch.events.size() < max; ++it) {
      batch.outcome = Outcome::kEvents;
      batch.events.push_back(it->event);
      batch.revision = it->revision;
    }
    return batch;
  }

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Precondition: not empty.
  const Entry& oldest() const { return entries_.front(); }
  // The lowest revision from which a reader can read.
  int64_t before_oldest() const { return before_oldest_; }
  // The revision of the last event, also after that was dropped.
  int64_t newest() const { return newest_; }

 private:
  std::deque<Entry> entries_;
  int64_t before_oldest_;
  int64_t newest_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_EVENT_LOG_H_
