// A Watcher of a ChangeStream: its calls in both modes.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_WATCHER_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_WATCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/change_stream.h"
#include "client/rendezvous/watcher.h"

namespace cohort::client {

// `Interface` is the Watcher that it implements.
template <typename Changes, typename Interface = Watcher<typename Changes::Event>>
class ChangeWatcher : public Interface {
 public:
  using Events = std::vector<typename Changes::Event>;
  using Stream = ChangeStream<Changes>;

  explicit ChangeWatcher(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {
    stream_->Begin();
  }
  ~ChangeWatcher() override { stream_->Close(); }

  absl::Status Open() override { return Await(/*until_open=*/true).status(); }
  absl::StatusOr<Events> Next() override { return Await(/*until_open=*/false); }
  void Open(std::shared_ptr<Cancellation> cancellation,
            std::function<void(absl::Status)> done) override {
    stream_->Wait(
        /*until_open=*/true, std::move(cancellation),
        [done = std::move(done)](const absl::StatusOr<Events>& none) { done(none.status()); });
  }
  void Next(std::shared_ptr<Cancellation> cancellation,
            typename Interface::EventsDone done) override {
    stream_->Wait(/*until_open=*/false, std::move(cancellation), std::move(done));
  }

  int64_t revision() const override { return stream_->revision(); }
  void Suspend() override { stream_->Suspend(); }
  void Close() override { stream_->Close(); }

 private:
  struct Answer {
    Mutex mutex;
    bool here ABSL_GUARDED_BY(mutex) = false;
    absl::StatusOr<Events> events ABSL_GUARDED_BY(mutex) = Events();
  };

  // Blocks, and tells about each second if the coordinator is away.
  absl::StatusOr<Events> Await(bool until_open) {
    const auto answer = std::make_shared<Answer>();
    const auto cancellation = std::make_shared<Cancellation>();
    const CallCancellations outer(nullptr);
    const CallCancellations::Listener listener(outer, [cancellation] {
      cancellation->Cancel(absl::CancelledError("the call was cancelled"));
    });
    stream_->Wait(until_open, cancellation, [answer](absl::StatusOr<Events> events) {
      MutexLock lock(&answer->mutex);
      answer->events = std::move(events);
      answer->here = true;
    });
    while (true) {
      {
        MutexLock lock(&answer->mutex);
        if (answer->mutex.AwaitWithTimeout(absl::Condition(&answer->here), absl::Seconds(1))) {
          const absl::Status reason =
              absl::IsCancelled(answer->events.status()) ? outer.reason() : absl::OkStatus();
          if (!reason.ok()) return reason;
          return std::move(answer->events);
        }
      }
      stream_->ReportHealth();
    }
  }

  const std::shared_ptr<Stream> stream_;
};

// Calls `on_event` for each event, on this thread, until it returns false or the watch ends: OK.
template <typename Event>
absl::Status ForEachEvent(Watcher<Event>& watcher,
                          const std::function<bool(const Event&)>& on_event) {
  while (true) {
    const absl::StatusOr<std::vector<Event>> events = watcher.Next();
    if (!events.ok()) return events.status();
    if (events->empty()) return absl::OkStatus();
    for (const Event& event : *events) {
      if (!on_event(event)) return absl::OkStatus();
    }
  }
}

// The options of a watch with a callback, which tries until its timeout ends.
inline WatcherOptions UntilTimeout(int64_t from_revision, absl::Duration timeout) {
  WatcherOptions options;
  options.from_revision = from_revision;
  options.timeout = timeout;
  options.reconnect_timeout = absl::InfiniteDuration();
  return options;
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_WATCHER_H_
