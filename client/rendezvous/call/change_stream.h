// A watch: streams of changes, one after the other. When one breaks, the next one goes on where it
// stopped.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_STREAM_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/call_health.h"
#include "client/rendezvous/call/call_retries.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/change_stream_attempt.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "client/rendezvous/watcher.h"
#include "grpcpp/support/status.h"

namespace cohort::client {

// The calls of a Watcher. Thread-safe. `Changes` has the types Event, Request and Response, and
//   static void Open(Stubs&, grpc::ClientContext*, const Request*, reactor);
//   static std::vector<Event> Read(Response&);
// It runs its callbacks on the connection's thread, and lives while a stream or a call needs it.
template <typename Changes>
class ChangeStream final : public ChangeStreamAttempt<Changes>::Owner,
                           public std::enable_shared_from_this<ChangeStream<Changes>> {
 public:
  using Event = typename Changes::Event;
  using Request = typename Changes::Request;
  using Response = typename Changes::Response;
  using Attempt = ChangeStreamAttempt<Changes>;
  using Done = std::function<void(absl::StatusOr<std::vector<Event>>)>;
  // Asks the coordinator for the present revision, until `deadline` at most.
  using FindRevision =
      std::function<void(Instant deadline, std::shared_ptr<Cancellation> cancellation,
                         std::function<void(absl::StatusOr<int64_t>)> done)>;

  // `what` names the watch in errors. `request` has all fields but the revision.
  ChangeStream(std::shared_ptr<ConnectionImpl> connection, std::string what, Request request,
               const WatcherOptions& options, FindRevision find_revision)
      : connection_(std::move(connection)),
        what_(std::move(what)),
        request_(std::move(request)),
        options_(options),
        find_revision_(std::move(find_revision)),
        health_(*connection_, Clock::Steady().Now() + options.timeout, /*may_wait=*/true),
        received_revision_(options.from_revision),
        taken_revision_(options.from_revision) {}

  // Once, after the constructor.
  void Begin() {
    if (options_.timeout == absl::InfiniteDuration()) return;
    MutexLock lock(&mutex_);
    deadline_timer_ =
        connection_->timers().After(options_.timeout, [weak = this->weak_from_this()] {
          if (auto self = weak.lock()) self->EndByTimeout();
        });
  }

  // Runs `done` when there are events, or an error; with `until_open`, also when the stream is
  // open.
  void Wait(bool until_open, std::shared_ptr<Cancellation> cancellation, Done done) {
    auto wait = std::make_shared<Waiting>();
    wait->until_open = until_open;
    wait->done = std::move(done);
    wait->cancellation = std::move(cancellation);
    const auto end = [weak = this->weak_from_this(), which = std::weak_ptr<Waiting>(wait)] {
      const auto self = weak.lock();
      const auto ended = which.lock();
      if (self != nullptr && ended != nullptr) self->CancelWait(ended);
    };
    if (wait->cancellation != nullptr) {
      wait->on_cancel.emplace(*wait->cancellation, [timers = &connection_->timers(), end](
                                                       const absl::Status&) { timers->Post(end); });
    }
    {
      MutexLock lock(&mutex_);
      if (waiting_ != nullptr) {
        return Post(std::move(wait), absl::FailedPreconditionError(absl::StrCat(
                                         what_, ": another call waits for its events already")));
      }
      waiting_ = wait;
    }
    // Its cancellation may have come before the call waited.
    if (wait->cancellation != nullptr && !wait->cancellation->reason().ok()) {
      connection_->timers().Post(end);
    }
    Advance();
  }

  int64_t revision() const {
    MutexLock lock(&mutex_);
    return taken_revision_;
  }

  void Suspend() {
    Stop([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !closed_; });
  }

  void Close() {
    Stop([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      connection_->timers().Cancel(deadline_timer_);
      closed_ = true;
      events_.clear();
      return true;
    });
  }

  // Tells the connection's `on_away`, on this thread, if the coordinator does not serve the watch.
  void ReportHealth() { health_.Served(); }

 private:
  struct Waiting {
    bool until_open = false;
    Done done;
    std::shared_ptr<Cancellation> cancellation;
    std::optional<Cancellation::Listener> on_cancel;
  };
  enum class State { kIdle, kFindingRevision, kOpening, kOpen, kPausing };

  static absl::Status Closed() { return absl::CancelledError("the watch was closed"); }

  // --- The stream.

  // Asks for the revision, or opens a stream. `round_` changes when it is stopped.
  void StartOpening() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Instant deadline = Clock::Steady().Now() + options_.reconnect_timeout;
    retries_.emplace(connection_->options(), CallLimits{what_, deadline});
    if (received_revision_ != 0) return StartAttempt();
    state_ = State::kFindingRevision;
    finding_ = std::make_shared<Cancellation>();
    connection_->timers().Post([self = this->shared_from_this(), round = round_, deadline,
                                cancellation = finding_] {
      self->find_revision_(deadline, cancellation, [self, round](absl::StatusOr<int64_t> revision) {
        self->OnRevision(round, revision);
      });
    });
  }

  void OnRevision(int64_t round, const absl::StatusOr<int64_t>& revision) {
    {
      MutexLock lock(&mutex_);
      if (round != round_ || state_ != State::kFindingRevision) return;
      finding_ = nullptr;
      if (revision.ok()) {
        received_revision_ = taken_revision_ = *revision;
        StartAttempt();
      } else {
        Fail(revision.status());
      }
    }
    Advance();
  }

  void StartAttempt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    state_ = State::kOpening;
    Request request = request_;
    request.set_from_revision(received_revision_);
    attempt_ = std::make_shared<Attempt>(this->weak_from_this(), connection_, std::move(request));
    connection_->timers().Post([attempt = attempt_] { attempt->Start(attempt); });
    // A coordinator that is stopped accepts connections, and does not answer.
    if (options_.reconnect_timeout == absl::InfiniteDuration()) return;
    const Instant now = Clock::Steady().Now();
    open_timer_ = connection_->timers().After(
        options_.reconnect_timeout, [weak = this->weak_from_this(), attempt = attempt_.get(), now] {
          auto self = weak.lock();
          if (self != nullptr) self->OnSilence(attempt, Clock::Steady().Now() - now);
        });
  }

  void OnSilence(const Attempt* attempt, absl::Duration silence) {
    std::shared_ptr<Attempt> dropped;
    {
      MutexLock lock(&mutex_);
      if (attempt != attempt_.get() || state_ != State::kOpening) return;
      dropped = std::move(attempt_);
      Fail(absl::UnavailableError(absl::StrCat("coordinator at ", connection_->options().address,
                                               " is away: ", what_, " got no answer in ",
                                               absl::FormatDuration(silence))));
    }
    dropped->Cancel();
    Advance();
  }

  void OnOpen(const Attempt* attempt, const std::string& incarnation) override {
    std::shared_ptr<Attempt> dropped;
    {
      MutexLock lock(&mutex_);
      if (attempt != attempt_.get()) return;
      connection_->timers().Cancel(open_timer_);
      state_ = State::kOpen;
      if (incarnation_.empty()) incarnation_ = incarnation;
      if (incarnation_ != incarnation) {
        // Its revisions may be those of other events.
        dropped = std::move(attempt_);
        Fail(absl::OutOfRangeError(absl::StrCat(
            what_, ": the coordinator has restarted since revision ", received_revision_,
            " and does not know the events after it; read the present state, then watch on")));
      }
    }
    if (dropped != nullptr) dropped->Cancel();
    Advance();
  }

  bool OnMessage(const Attempt* attempt, Response& response) override {
    std::vector<Event> events = Changes::Read(response);
    {
      MutexLock lock(&mutex_);
      if (attempt != attempt_.get()) return false;
      retries_.reset();
      received_revision_ = std::max<int64_t>(received_revision_, response.revision());
      if (events.empty()) {
        if (events_.empty()) taken_revision_ = received_revision_;
        return true;
      }
      events_ = std::move(events);
    }
    Advance();
    return false;
  }

  void OnEnd(const Attempt* attempt, const grpc::Status& status) override {
    {
      MutexLock lock(&mutex_);
      if (attempt != attempt_.get()) return;
      attempt_ = nullptr;
      connection_->timers().Cancel(open_timer_);
      absl::Status result;
      std::optional<absl::Duration> pause;
      if (status.ok()) {
        ended_ = true;
        state_ = State::kIdle;
      } else {
        if (!retries_.has_value()) {
          const Instant deadline = Clock::Steady().Now() + options_.reconnect_timeout;
          retries_.emplace(connection_->options(), CallLimits{what_, deadline});
        }
        retries_->Begin();
        pause = retries_->Judge(connection_->Explain(status), &result);
        if (!pause.has_value()) Fail(std::move(result));
      }
      if (pause.has_value()) {
        health_.OnRepeat(status, *pause);
        state_ = State::kPausing;
        connection_->timers().After(*pause, [weak = this->weak_from_this(), round = round_] {
          if (auto self = weak.lock()) self->OpenAgain(round);
        });
      }
    }
    Advance();
  }

  void OpenAgain(int64_t round) {
    MutexLock lock(&mutex_);
    if (round == round_ && state_ == State::kPausing) StartAttempt();
  }

  // The next call of a consumer gets the error. The one after it opens a stream.
  void Fail(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    error_ = std::move(error);
    Reset();
  }

  void Reset() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++round_;
    state_ = State::kIdle;
    retries_.reset();
    connection_->timers().Cancel(open_timer_);
  }

  // Closes the stream if `prepare` says so.
  template <typename Prepare>
  void Stop(const Prepare& prepare) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<Attempt> dropped;
    std::shared_ptr<Cancellation> finding;
    {
      MutexLock lock(&mutex_);
      if (!prepare()) return;
      dropped = std::move(attempt_);
      finding = std::move(finding_);
      Reset();
      if (waiting_ != nullptr) Post(std::move(waiting_), Closed());
    }
    if (dropped != nullptr) dropped->Cancel();
    if (finding != nullptr) finding->Cancel(Closed());
  }

  void EndByTimeout() {
    Stop([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      ended_ = true;
      if (waiting_ != nullptr) Post(std::move(waiting_), std::vector<Event>());
      return true;
    });
  }

  // --- The consumer.

  // Answers the call that waits, if it can be answered, or else opens the stream.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<Attempt> read_on;
    {
      MutexLock lock(&mutex_);
      if (waiting_ == nullptr) return;
      if (closed_) {
        Post(std::move(waiting_), Closed());
      } else if (!events_.empty()) {
        std::vector<Event> events;
        if (!waiting_->until_open) {
          events = std::exchange(events_, {});
          taken_revision_ = received_revision_;
          read_on = attempt_;
        }
        Post(std::move(waiting_), std::move(events));
      } else if (ended_ || (waiting_->until_open && state_ == State::kOpen)) {
        Post(std::move(waiting_), std::vector<Event>());
      } else if (!error_.ok()) {
        Post(std::move(waiting_), std::exchange(error_, absl::OkStatus()));
      } else if (state_ == State::kIdle) {
        StartOpening();
      }
    }
    if (read_on != nullptr) read_on->ReadOn();
  }

  void CancelWait(const std::shared_ptr<Waiting>& wait) {
    MutexLock lock(&mutex_);
    if (waiting_ != wait) return;
    absl::Status reason = wait->cancellation->reason();
    Post(std::move(waiting_), std::move(reason));
  }

  // Answers a call, later.
  void Post(std::shared_ptr<Waiting> wait, absl::StatusOr<std::vector<Event>> result) {
    // The value may not be copyable, but tasks are.
    auto kept = std::make_shared<absl::StatusOr<std::vector<Event>>>(std::move(result));
    connection_->timers().Post([self = this->shared_from_this(), wait = std::move(wait), kept] {
      wait->on_cancel.reset();
      const Done done = std::move(wait->done);
      done(std::move(*kept));
    });
  }

  const std::shared_ptr<ConnectionImpl> connection_;
  const std::string what_;
  const Request request_;
  const WatcherOptions options_;
  const FindRevision find_revision_;
  CallHealth health_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;   // there will be no more events
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // by the consumer
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Cancellation> finding_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);
  std::optional<CallRetries> retries_ ABSL_GUARDED_BY(mutex_);  // since the last message
  std::string incarnation_ ABSL_GUARDED_BY(mutex_);             // the coordinator's
  uint64_t open_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t deadline_timer_ ABSL_GUARDED_BY(mutex_) = 0;

  // The message that waits for the consumer: the stream is not read meanwhile.
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  int64_t received_revision_ ABSL_GUARDED_BY(mutex_);  // with `events_`
  int64_t taken_revision_ ABSL_GUARDED_BY(mutex_);     // without them
  std::shared_ptr<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_STREAM_H_
