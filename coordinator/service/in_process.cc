#include "coordinator/service/in_process.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/journal/memory_journal.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator {
namespace {

// Encodes on the delivering thread, like a service does, and hands the result to whoever waits.
class WaitingSink final : public ReplySink {
 public:
  WaitingSink(Dispatcher& dispatcher, Method method) : dispatcher_(dispatcher), method_(method) {}

  Asker& asker() { return asker_; }

  void OnReply(Reply&& reply, DeliveryContext& context) override {
    MessageBytes message;
    absl::Status status = dispatcher_.Encode(method_, reply, asker_, context, &message);
    std::lock_guard<std::mutex> lock(mutex_);
    if (status.ok()) {
      result_ = message.Flatten();
    } else {
      result_ = std::move(status);
    }
    done_ = true;
    // Under the lock: the waiter destroys this object as soon as it sees `done_`.
    changed_.notify_one();
  }

  bool WaitFor(absl::Duration patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(patience), [this] { return done_; });
  }
  absl::StatusOr<std::string> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return std::move(result_);
  }

 private:
  Dispatcher& dispatcher_;
  const Method method_;
  Asker asker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  absl::StatusOr<std::string> result_ = absl::UnknownError("no reply yet");
};

}  // namespace

InProcessCoordinator::InProcessCoordinator(const InProcessOptions& options) : options_(options) {
  EngineOptions engine_options;
  engine_options.shards = options.shards;
  engine_options.limits = options.limits;
  // A memory journal opens always, so there is an engine.
  engine_ =
      Engine::Start(engine_options, std::make_unique<MemoryJournal>(), Clock::Steady()).value();
  dispatcher_ = std::make_unique<Dispatcher>(DispatcherOptions(), *engine_, nullptr);
}

InProcessCoordinator::~InProcessCoordinator() { engine_->Shutdown(); }

absl::StatusOr<std::string> InProcessCoordinator::Handle(Method method,
                                                         absl::string_view request_bytes) {
  google::protobuf::io::ArrayInputStream stream(request_bytes.data(),
                                                static_cast<int>(request_bytes.size()));
  if (GetMethod(method).decode == nullptr) {
    MessageBytes message;
    COHORT_RETURN_IF_ERROR(dispatcher_->Run(method, &stream, &message));
    return message.Flatten();
  }
  WaitingSink sink(*dispatcher_, method);
  Call call;
  COHORT_RETURN_IF_ERROR(
      dispatcher_->Decode(method, &stream, absl::InfiniteDuration(), &call, &sink.asker()));
  CallHandle handle;
  engine_->Submit(std::move(call), &sink, &handle);
  if (!sink.WaitFor(options_.patience) && engine_->Cancel(handle)) {
    return absl::CancelledError("not answered in time");
  }
  return sink.Take();
}

absl::StatusOr<std::string> InProcessCoordinator::Handle(absl::string_view method_path,
                                                         absl::string_view request_bytes) {
  const std::optional<Method> method = FindMethod(method_path);
  if (!method.has_value()) {
    return absl::UnimplementedError(absl::StrCat("no method ", method_path));
  }
  return Handle(*method, request_bytes);
}

}  // namespace cohort::coordinator
