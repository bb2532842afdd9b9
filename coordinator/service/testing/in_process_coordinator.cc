#include "coordinator/service/testing/in_process_coordinator.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cohort/v1/messaging.pb.h"
#include "coordinator/journal/memory_journal.h"
#include "coordinator/service/codec/decode.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator {
namespace {

// Encodes on the delivering thread, like a service, and hands the result to the waiting thread.
class WaitingCall final : public InProcessCall, private ReplySink {
 public:
  WaitingCall(Dispatcher& dispatcher, Method method) : dispatcher_(dispatcher), method_(method) {}

  ~WaitingCall() override {
    if (AnsweredOrCancelled()) return;
    // Too late to cancel: the reply is on its way to this object.
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

  void Run(absl::string_view request_bytes) {
    google::protobuf::io::ArrayInputStream stream(request_bytes.data(),
                                                  static_cast<int>(request_bytes.size()));
    if (method_ != Method::kUpload && GetMethod(method_).decode == nullptr) {
      MessageBytes message;
      const absl::Status status = dispatcher_.Run(method_, nullptr, &stream, &message);
      Finish(status, message);
      return;
    }
    Call call;
    const absl::Status status =
        method_ == Method::kUpload
            ? DecodeUpload(&stream, &call)
            : dispatcher_.Decode(method_, nullptr, &stream, request_bytes.size(),
                                 absl::InfiniteDuration(), &call, &asker_);
    if (!status.ok()) return Finish(status, MessageBytes());
    dispatcher_.engine().Submit(std::move(call), this, &handle_);
  }

  bool WaitFor(absl::Duration timeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return done_; });
  }

  absl::StatusOr<std::string> Take() override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return std::move(result_);
  }

 private:
  absl::Status DecodeUpload(google::protobuf::io::ZeroCopyInputStream* stream, Call* call) {
    v1::UploadRequest part;
    if (!part.ParseFromZeroCopyStream(stream)) {
      return absl::InvalidArgumentError("a part is not a well-formed UploadRequest");
    }
    COHORT_RETURN_IF_ERROR(
        coordinator::Decode(part, dispatcher_.MakeDecodeContext(absl::InfiniteDuration()), call));
    asker_.key = call->caller.key;
    asker_.session = call->caller.session;
    call->body = PutBlobCall{std::move(*part.mutable_data())};
    return absl::OkStatus();
  }

  void OnReply(Reply&& reply, DeliveryContext& context) override {
    MessageBytes message;
    const absl::Status status = dispatcher_.Encode(method_, reply, asker_, context, &message);
    Finish(status, message);
  }

  void Finish(const absl::Status& status, const MessageBytes& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status.ok()) {
      result_ = message.Flatten();
    } else {
      result_ = status;
    }
    done_ = true;
    // Under the lock: the waiter destroys this object as soon as it sees `done_`.
    changed_.notify_one();
  }

  bool AnsweredOrCancelled() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (done_) return true;
    }
    return dispatcher_.engine().Cancel(handle_);
  }

  Dispatcher& dispatcher_;
  const Method method_;
  Asker asker_;
  CallHandle handle_;
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
  // Another clock may jump.
  if (options.clock != &Clock::Steady()) engine_options.pause = absl::InfiniteDuration();
  // A memory journal opens always, so there is an engine.
  engine_ =
      Engine::Start(engine_options, std::make_unique<MemoryJournal>(), *options.clock).value();
  dispatcher_ = std::make_unique<Dispatcher>(DispatcherOptions(), *engine_, nullptr);
}

InProcessCoordinator::~InProcessCoordinator() { engine_->Shutdown(); }

std::unique_ptr<InProcessCall> InProcessCoordinator::Begin(Method method,
                                                           absl::string_view request_bytes) {
  auto call = std::make_unique<WaitingCall>(*dispatcher_, method);
  call->Run(request_bytes);
  return call;
}

absl::StatusOr<std::string> InProcessCoordinator::Handle(Method method,
                                                         absl::string_view request_bytes) {
  const std::unique_ptr<InProcessCall> call = Begin(method, request_bytes);
  if (!call->WaitFor(options_.timeout)) return absl::CancelledError("not answered in time");
  return call->Take();
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
