// Watches that a consumer reads at its own pace: changes of keys (async_store_client.h), or events
// of a group (admin_client.h).
//
//   std::unique_ptr<KeyWatcher> watcher = store->async().NewWatcher("workers/");
//   absl::Status opened = watcher->Open();       // sees all changes from here on
//   while (true) {
//     absl::StatusOr<std::vector<KeyEvent>> events = watcher->Next();
//     if (!events.ok() || events->empty()) break;
//     for (const KeyEvent& event : *events) Handle(event);
//   }
#ifndef COHORT_CLIENT_RENDEZVOUS_WATCHER_H_
#define COHORT_CLIENT_RENDEZVOUS_WATCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/report/report.h"
#include "client/rendezvous/store_types.h"

namespace cohort::client {

struct WatcherOptions {
  // Watch what happens after this revision. 0: after Open.
  int64_t from_revision = 0;
  // The watch ends after this time.
  absl::Duration timeout = absl::InfiniteDuration();
  // How long the coordinator may be away, each time, before the watch fails.
  absl::Duration reconnect_timeout = absl::Seconds(15);
};

// A stream of events, each once and in order. When the connection breaks, the watch opens a new
// stream and goes on after the last event. At most one message of the coordinator waits here for
// the consumer: a slow consumer slows its stream down, until the coordinator drops events that were
// not read (OUT_OF_RANGE).
//
// Thread-safe. One call of Open or Next at a time; a second one fails with FAILED_PRECONDITION.
// Errors of Open and Next:
//   OUT_OF_RANGE   the coordinator has restarted, or no longer keeps the next events. Make another
//                  watch, then read the present state.
//   UNAVAILABLE    the coordinator was away for the reconnect timeout
//   NOT_FOUND      there is no such group
//   CANCELLED      by Close, Suspend or the caller's cancellation
//   INVALID_ARGUMENT, RESOURCE_EXHAUSTED
// After an error, the next call opens the stream again, after the last event.
template <typename Event>
class Watcher {
 public:
  using EventsDone = std::function<void(absl::StatusOr<std::vector<Event>>)>;

  // Closes the stream, as Close does.
  virtual ~Watcher() = default;

  // Opens the stream if it is not open, and blocks for at most the reconnect timeout. Once it has
  // returned OK, Next returns all later events, or an error. Next opens the stream, too.
  virtual absl::Status Open() = 0;
  // Blocks until there are events, and returns at least one. Empty: the watch has ended, because
  // its timeout passed or the group was closed.
  virtual absl::StatusOr<std::vector<Event>> Next() = 0;

  // The same without blocking. `done` runs once, on a thread of the library, and must not block.
  // `cancellation` ends the call early, with its reason, and loses no event; it may be null.
  virtual void Open(std::shared_ptr<Cancellation> cancellation,
                    std::function<void(absl::Status)> done) = 0;
  virtual void Next(std::shared_ptr<Cancellation> cancellation, EventsDone done) = 0;

  // The revision up to which the consumer has all events; 0 before the watch was open. Another
  // watch may go on from here.
  virtual int64_t revision() const = 0;

  // Closes the stream. The next call of Open or Next opens it again, after the last event.
  virtual void Suspend() = 0;
  // Closes the stream for ever. A call in flight ends soon with CANCELLED.
  virtual void Close() = 0;
};

using KeyWatcher = Watcher<KeyEvent>;

class GroupWatcher : public Watcher<GroupEvent> {
 public:
  // The group when the watch began: the events tell what happened since. Absent before it was open,
  // and if the watch began with a given revision.
  virtual std::optional<GroupInfo> info() const = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_WATCHER_H_
