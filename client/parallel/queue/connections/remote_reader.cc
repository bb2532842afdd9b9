#include "client/parallel/queue/connections/remote_reader.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/client_channel.h"
#include "base/rpc/client_tls.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "base/threads/mutex.h"
#include "base/tls/tls_context.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/ring/ring_layout.h"
#include "client/parallel/queue/ring/wire_text.h"
#include "cohort/v1/queue.grpc.pb.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/client_callback.h"

namespace cohort::parallel {
namespace {

// Larger than the writer's chunks.
const ClientChannelOptions kChannel = {absl::Seconds(20), 4 << 20};
// The time in which the writer takes note that this reader leaves.
constexpr absl::Duration kGoodbye = absl::Milliseconds(500);

// The address in gRPC's form: a host whose name is one of gRPC's schemes stays a host.
std::string TargetOf(absl::string_view address) {
  std::string target = "dns:///";
  for (const char c : address) {
    if (absl::ascii_isalnum(c) || absl::StrContains("-._~:", c)) {
      target.push_back(c);
    } else {
      absl::StrAppend(&target, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return target;
}

class RemoteReader final
    : public ByteSource,
      private grpc::ClientBidiReactor<v1::ReadQueueRequest, v1::ReadQueueResponse> {
 public:
  RemoteReader(const v1::QueueHandle& handle, const std::string& address, const RankTls& tls)
      : writer_(handle.writer()),
        address_(address),
        path_(absl::StrCat(handle.tls() ? "tls " : "", "stream ", address)),
        stub_(v1::QueueService::NewStub(CreateClientChannel(
            TargetOf(address), kChannel,
            handle.tls() ? PeerCredentialsFor(tls.files, handle.certificate_name())
                         : grpc::InsecureChannelCredentials()))) {}
  ~RemoteReader() override;

  // Says hello, and waits until the writer admits it.
  absl::Status Start(const v1::QueueHello& hello, const WaitLimit& limit)
      ABSL_LOCKS_EXCLUDED(mutex_);

  absl::string_view Peek() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Release(uint64_t bytes, uint64_t values) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Await(uint64_t bytes, const WaitLimit& limit) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave(absl::string_view reason) override ABSL_LOCKS_EXCLUDED(mutex_);
  std::string path() const override { return path_; }

 private:
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns false if no writer sends such a response.
  bool Take(v1::ReadQueueResponse& response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::string_view Front() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (chunks_.empty()) return {};
    return absl::string_view(chunks_.front()).substr(front_offset_);
  }
  // Joins chunks until the first has so many bytes; they are all there.
  void Join(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called once; no write follows it.
  void SendLeaves(absl::string_view reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends writing. The call's status follows once it is known.
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WhyOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string writer_;
  const std::string address_;
  const std::string path_;
  const std::unique_ptr<v1::QueueService::Stub> stub_;
  grpc::ClientContext context_;
  v1::ReadQueueResponse response_;

  Mutex mutex_;
  CondVar changed_;
  v1::ReadQueueRequest request_ ABSL_GUARDED_BY(mutex_);  // gRPC's while `writing_`
  bool started_ = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool progress_waits_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::string> leaves_ ABSL_GUARDED_BY(mutex_);  // the reason why it leaves
  bool leaves_waits_ ABSL_GUARDED_BY(mutex_) = false;          // for the write before it
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::QueueWelcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> chunks_ ABSL_GUARDED_BY(mutex_);
  uint64_t front_offset_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t there_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes that arrived and were not released
  uint64_t position_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t reported_ ABSL_GUARDED_BY(mutex_) = 0;  // the position that the writer knows
  uint64_t values_ ABSL_GUARDED_BY(mutex_) = 0;  // values that the writer does not know about
  std::optional<std::string> end_ ABSL_GUARDED_BY(mutex_);
  bool read_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> done_ ABSL_GUARDED_BY(mutex_);
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);  // ends the call that waits
};

absl::Status RemoteReader::Start(const v1::QueueHello& hello, const WaitLimit& limit) {
  {
    MutexLock lock(&mutex_);
    *request_.mutable_hello() = hello;
    writing_ = true;
    held_ = true;
    started_ = true;
    stub_->async()->Read(&context_, this);
    AddHold();  // for writes outside of reactions
    StartRead(&response_);
    StartWrite(&request_);
  }
  StartCall();
  const Instant deadline = limit.deadline();
  // Destroyed after the lock.
  const auto listener = limit.OnCancel([this](const absl::Status& reason) {
    MutexLock lock(&mutex_);
    cancelled_ = reason;
  });
  MutexLock lock(&mutex_);
  const auto answered = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return welcome_.has_value() || read_over_ || !cancelled_.ok();
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&answered), deadline - Clock::Steady().Now())) {
    return absl::DeadlineExceededError(absl::StrCat("no welcome came from ", address_));
  }
  COHORT_RETURN_IF_ERROR(cancelled_);
  if (welcome_.has_value()) return absl::OkStatus();
  LetGo();
  const auto is_done = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_.has_value(); };
  mutex_.AwaitWithTimeout(absl::Condition(&is_done), deadline - Clock::Steady().Now());
  const absl::Status status = done_.value_or(absl::DeadlineExceededError("the call does not end"));
  const absl::StatusCode code = status.ok() ? absl::StatusCode::kUnavailable : status.code();
  return absl::Status(code, absl::StrCat(address_, ": ", status.message()));
}

RemoteReader::~RemoteReader() {
  if (!started_) return;
  MutexLock lock(&mutex_);
  if (welcome_.has_value()) {
    if (!end_.has_value()) SendLeaves("it closed the queue");
    mutex_.AwaitWithTimeout(absl::Condition(&read_over_), kGoodbye);
  }
  context_.TryCancel();
  LetGo();
  // gRPC says so once a call is cancelled, whatever happens.
  while (!done_.has_value()) changed_.Wait(&mutex_);
}

void RemoteReader::LetGo() {
  if (!std::exchange(held_, false)) return;
  progress_waits_ = false;
  RemoveHold();
}

bool RemoteReader::Take(v1::ReadQueueResponse& response) {
  if (response.has_welcome()) {
    if (welcome_.has_value() || !CheckWelcome(response.welcome()).ok()) return false;
    welcome_ = response.welcome();
    position_ = reported_ = welcome_->position();
    return true;
  }
  if (!welcome_.has_value() || end_.has_value()) return false;
  if (response.has_end()) {
    end_ = Printable(response.end().reason());
    return true;
  }
  const uint64_t size = response.data().size();
  const uint64_t ahead = position_ + there_ + size - reported_;
  if (size == 0 || size % kRecordAlign != 0 ||
      ahead > static_cast<uint64_t>(welcome_->capacity_bytes())) {
    return false;
  }
  there_ += size;
  chunks_.push_back(std::move(*response.mutable_data()));
  return true;
}

void RemoteReader::OnReadDone(bool ok) {
  bool goes_on = ok;
  {
    MutexLock lock(&mutex_);
    if (ok) {
      goes_on = Take(response_);
      if (!goes_on) context_.TryCancel();
    }
    read_over_ = !goes_on;
    // The end of the call tells the reason. It comes when no write can follow.
    if (read_over_) LetGo();
    changed_.SignalAll();
  }
  if (!goes_on) return;
  response_.Clear();
  StartRead(&response_);
}

void RemoteReader::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (ok && leaves_waits_) {
    SendLeaves(*leaves_);
  } else if (ok && std::exchange(progress_waits_, false)) {
    SendProgress();
  }
  changed_.SignalAll();
}

void RemoteReader::OnDone(const grpc::Status& status) {
  MutexLock lock(&mutex_);
  done_ = FromGrpcStatus(status);
  changed_.SignalAll();
}

absl::string_view RemoteReader::Peek() {
  MutexLock lock(&mutex_);
  return Front();
}

void RemoteReader::SendLeaves(absl::string_view reason) {
  if (!held_ || (leaves_.has_value() && !leaves_waits_)) return;
  if (!leaves_.has_value()) leaves_ = WireText(reason, kMostReasonBytes);
  leaves_waits_ = writing_;
  if (writing_) return;
  request_.mutable_leaves()->set_reason(*leaves_);
  writing_ = true;
  StartWriteLast(&request_, {});
}

void RemoteReader::SendProgress() {
  if (!held_ || read_over_ || leaves_.has_value()) return;
  if (writing_) {
    progress_waits_ = true;
    return;
  }
  v1::QueueProgress* const progress = request_.mutable_progress();
  progress->set_position(position_);
  progress->set_values(std::exchange(values_, 0));
  reported_ = position_;
  writing_ = true;
  StartWrite(&request_);
}

void RemoteReader::Release(uint64_t bytes, uint64_t values) {
  std::string dropped;  // outside of the lock
  MutexLock lock(&mutex_);
  position_ += bytes;
  there_ -= bytes;
  values_ += values;
  front_offset_ += bytes;
  if (front_offset_ == chunks_.front().size()) {
    dropped = std::move(chunks_.front());
    chunks_.pop_front();
    front_offset_ = 0;
  }
  // Even then, values of half the ring have room.
  if (position_ - reported_ >= static_cast<uint64_t>(welcome_->capacity_bytes()) / 8)
    SendProgress();
}

void RemoteReader::Join(uint64_t bytes) {
  if (Front().size() >= bytes) return;
  std::string joined(Front());
  chunks_.pop_front();
  front_offset_ = 0;
  joined.reserve(bytes);
  while (joined.size() < bytes) {
    joined += chunks_.front();
    chunks_.pop_front();
  }
  chunks_.push_front(std::move(joined));
}

absl::Status RemoteReader::Await(uint64_t bytes, const WaitLimit& limit) {
  {
    MutexLock lock(&mutex_);
    if (!stopped_.ok()) return stopped_;
    if (Front().size() >= bytes) return absl::OkStatus();
    cancelled_ = absl::OkStatus();
  }
  const auto listener = limit.OnCancel([this](const absl::Status& reason) {
    MutexLock lock(&mutex_);
    cancelled_ = reason;
    changed_.SignalAll();
  });
  absl::Status status;
  MutexLock lock(&mutex_);
  while (there_ < bytes) {
    status = stopped_.ok() ? cancelled_ : stopped_;
    if (status.ok() && (end_.has_value() || done_.has_value())) status = WhyOver();
    const absl::Duration left = limit.deadline() - Clock::Steady().Now();
    if (status.ok() && left <= absl::ZeroDuration()) status = absl::DeadlineExceededError("");
    if (!status.ok()) return status;
    changed_.WaitWithTimeout(&mutex_, left);
  }
  Join(bytes);
  return absl::OkStatus();
}

absl::Status RemoteReader::WhyOver() {
  if (end_.has_value()) {
    return absl::CancelledError(absl::StrCat(writer_, " shut it down: ", *end_));
  }
  // Only a live writer sends this.
  if (done_.has_value() && (absl::IsAborted(*done_) || absl::IsInvalidArgument(*done_))) {
    return absl::AbortedError(
        absl::StrCat(writer_, ", who writes it, let this reader go: ", done_->message()));
  }
  return absl::AbortedError(
      absl::StrCat(writer_, ", who writes it, is gone: the stream from ", address_, " has ended"));
}

void RemoteReader::Stop(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (stopped_.ok()) stopped_ = reason;
  changed_.SignalAll();
}

void RemoteReader::Leave(absl::string_view reason) {
  MutexLock lock(&mutex_);
  if (!end_.has_value()) SendLeaves(reason);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenStreamReader(const v1::QueueHandle& handle,
                                                             const std::string& address,
                                                             const std::string& name,
                                                             const RankTls& tls,
                                                             const WaitLimit& limit) {
  if (handle.tls() != (tls.state == TlsState::kOn) || IsTlsElsewhere(tls.state)) {
    return absl::FailedPreconditionError(absl::StrCat(
        address,
        handle.tls() ? " serves TLS, and this process " : " serves no TLS, and this process ",
        DescribeTls(tls.state),
        ". Give both COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, or both "
        "COHORT_RANK_TLS=off"));
  }
  // gRPC does not say why it cannot use a file.
  if (handle.tls()) COHORT_RETURN_IF_ERROR(TlsContext::Load(tls.files, TlsSide::kPeer).status());
  auto reader = std::make_unique<RemoteReader>(handle, address, tls);
  COHORT_RETURN_IF_ERROR(reader->Start(HelloTo(handle, name), limit));
  return reader;
}

}  // namespace cohort::parallel
