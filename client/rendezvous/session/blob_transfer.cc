#include "client/rendezvous/session/blob_transfer.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/rpc/grpc_deadline.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "grpcpp/support/client_callback.h"

namespace cohort::client {
namespace {

// No more is set aside on the word of the coordinator alone.
constexpr int64_t kTrustedBytes = 64 << 20;

CallSpec TransferSpec(std::string what, Instant deadline) {
  CallSpec spec;
  spec.what = std::move(what);
  spec.deadline = deadline;
  spec.read = true;  // a lost transfer is sent again as a whole, under a new name
  return spec;
}

// Repeats attempts of one transfer. `Stream` is one attempt: made from (transfer, context), it
// starts itself and calls Transfer::OnAttempt when gRPC is done with it. The subclass keeps the
// state of all retries.
class Transfer : public Cancellable, public std::enable_shared_from_this<Transfer> {
 public:
  Transfer(std::shared_ptr<GroupSession> session, std::string what, Instant deadline)
      : session_(std::move(session)),
        spec_(TransferSpec(std::move(what), deadline)),
        retries_(session_->connection()->options(), session_->Limits(spec_)) {}

  void Begin() {
    if (absl::Status status = session_->FillScope(spec_, &scope_); !status.ok()) {
      session_->connection()->timers().Post(
          [self = shared_from_this(), status = std::move(status)] { self->Deliver(status); });
      return;
    }
    if (!session_->calls().Add(shared_from_this())) Cancel();
    Attempt();
  }

  void Cancel() override {
    std::shared_ptr<grpc::ClientContext> context;
    uint64_t pause = 0;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      context = context_;
      pause = pause_;
    }
    if (context != nullptr) context->TryCancel();
    if (pause != 0 && session_->connection()->timers().Cancel(pause)) {
      session_->connection()->timers().Post(
          [self = shared_from_this()] { self->OnAttempt(grpc::Status::CANCELLED); });
    }
  }

  void OnAttempt(const grpc::Status& status) {
    absl::Status result;
    if (!status.ok()) {
      const std::optional<absl::Duration> pause = retries_.Judge(status, &result);
      MutexLock lock(&mutex_);
      if (cancelled_) {
        result = OwnerGone();
      } else if (pause.has_value()) {
        pause_ = session_->connection()->timers().After(
            *pause, [self = shared_from_this()] { self->Attempt(); });
        return;
      }
    }
    session_->calls().Remove(shared_from_this());
    Deliver(result);
  }

  ConnectionImpl& connection() const { return *session_->connection(); }
  const v1::Scope& scope() const { return scope_; }

 protected:
  virtual void StartStream(std::shared_ptr<grpc::ClientContext> context) = 0;
  virtual void Deliver(const absl::Status& status) = 0;

 private:
  void Attempt() {
    auto context = std::make_shared<grpc::ClientContext>();
    {
      MutexLock lock(&mutex_);
      context_ = context;
    }
    if (Cancelled()) {
      OnAttempt(grpc::Status::CANCELLED);
      return;
    }
    context->set_deadline(GrpcDeadline(retries_.Begin().timeout));
    StartStream(std::move(context));
  }
  bool Cancelled() {
    MutexLock lock(&mutex_);
    return cancelled_;
  }

  const std::shared_ptr<GroupSession> session_;
  const CallSpec spec_;
  CallRetries retries_;
  v1::Scope scope_;

  Mutex mutex_;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  uint64_t pause_ ABSL_GUARDED_BY(mutex_) = 0;  // the timer of the latest pause
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class Upload final : public Transfer {
 public:
  using Done = std::function<void(absl::StatusOr<v1::BlobRef>)>;
  Upload(std::shared_ptr<GroupSession> session, std::shared_ptr<const std::string> bytes,
         Instant deadline, Done done)
      : Transfer(std::move(session), absl::StrCat("upload of ", bytes->size(), " bytes"), deadline),
        bytes_(std::move(bytes)),
        done_(std::move(done)) {
    blob_.set_size_bytes(static_cast<int64_t>(bytes_->size()));
    blob_.set_crc32(Crc32(*bytes_));
  }

 private:
  class Stream final : public grpc::ClientWriteReactor<v1::UploadRequest> {
   public:
    Stream(std::shared_ptr<Upload> transfer, std::shared_ptr<grpc::ClientContext> context)
        : transfer_(std::move(transfer)), context_(std::move(context)) {
      *part_.mutable_scope() = transfer_->scope();
      part_.set_size_bytes(transfer_->blob_.size_bytes());
      part_.set_crc32(transfer_->blob_.crc32());
    }
    void Start() {
      transfer_->connection().stubs().Get<v1::MessagingService>().async()->Upload(context_.get(),
                                                                           &response_, this);
      WritePart();
      StartCall();
    }
    void OnWriteDone(bool ok) override {
      if (!ok || sent_ == transfer_->blob_.size_bytes()) return;  // OnDone says the rest
      part_.Clear();
      WritePart();
    }
    void OnDone(const grpc::Status& status) override {
      const std::unique_ptr<Stream> self(this);
      if (status.ok()) transfer_->blob_.set_blob(response_.blob());
      transfer_->OnAttempt(status);
    }

   private:
    void WritePart() {
      const absl::string_view data =
          absl::string_view(*transfer_->bytes_).substr(sent_, kMaxPartBytes);
      part_.set_offset(sent_);
      part_.set_data(data.data(), data.size());
      sent_ += static_cast<int64_t>(data.size());
      if (sent_ == transfer_->blob_.size_bytes()) {
        StartWriteLast(&part_, grpc::WriteOptions());
      } else {
        StartWrite(&part_);
      }
    }

    const std::shared_ptr<Upload> transfer_;
    const std::shared_ptr<grpc::ClientContext> context_;
    v1::UploadRequest part_;
    v1::UploadResponse response_;
    int64_t sent_ = 0;
  };

  void StartStream(std::shared_ptr<grpc::ClientContext> context) override {
    auto* stream = new Stream(std::static_pointer_cast<Upload>(shared_from_this()),
                              std::move(context));  // deletes itself in OnDone
    stream->Start();
  }
  void Deliver(const absl::Status& status) override {
    Done done = std::exchange(done_, nullptr);
    if (!status.ok()) {
      done(status);
    } else {
      done(blob_);
    }
  }

  const std::shared_ptr<const std::string> bytes_;
  v1::BlobRef blob_;
  Done done_;
};

class Download final : public Transfer {
 public:
  using Done = std::function<void(absl::StatusOr<std::string>)>;
  Download(std::shared_ptr<GroupSession> session, const v1::BlobRef& blob, Instant deadline,
           Done done)
      : Transfer(std::move(session), absl::StrCat("download of ", blob.size_bytes(), " bytes"),
                 deadline),
        blob_(blob),
        done_(std::move(done)) {}

 private:
  class Stream final : public grpc::ClientReadReactor<v1::DownloadResponse> {
   public:
    Stream(std::shared_ptr<Download> transfer, std::shared_ptr<grpc::ClientContext> context)
        : transfer_(std::move(transfer)), context_(std::move(context)) {
      *request_.mutable_scope() = transfer_->scope();
      request_.set_blob(transfer_->blob_.blob());
      request_.set_offset(static_cast<int64_t>(transfer_->bytes_.size()));
    }
    void Start() {
      transfer_->connection().stubs().Get<v1::MessagingService>().async()->Download(context_.get(),
                                                                             &request_, this);
      StartRead(&part_);
      StartCall();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      if (!transfer_->Take(part_)) {
        context_->TryCancel();
        return;
      }
      StartRead(&part_);
    }
    void OnDone(const grpc::Status& status) override {
      const std::unique_ptr<Stream> self(this);
      // This client cut the stream because its data was wrong; Deliver returns that error.
      transfer_->OnAttempt(transfer_->wrong_ ? grpc::Status::OK : status);
    }

   private:
    const std::shared_ptr<Download> transfer_;
    const std::shared_ptr<grpc::ClientContext> context_;
    v1::DownloadRequest request_;
    v1::DownloadResponse part_;
  };

  void StartStream(std::shared_ptr<grpc::ClientContext> context) override {
    auto* stream = new Stream(std::static_pointer_cast<Download>(shared_from_this()),
                              std::move(context));  // deletes itself in OnDone
    stream->Start();
  }
  bool Take(const v1::DownloadResponse& part) {
    const int64_t have = static_cast<int64_t>(bytes_.size());
    const int64_t added = static_cast<int64_t>(part.data().size());
    wrong_ = part.offset() != have || have + added > blob_.size_bytes();
    if (wrong_) return false;
    if (bytes_.empty()) {
      bytes_.reserve(static_cast<size_t>(std::min(blob_.size_bytes(), kTrustedBytes)));
    }
    bytes_.append(part.data());
    crc32_ = Crc32(part.data(), crc32_);
    return true;
  }
  void Deliver(const absl::Status& status) override {
    Done done = std::exchange(done_, nullptr);
    if (!status.ok()) {
      done(status);
      return;
    }
    const int64_t size = static_cast<int64_t>(bytes_.size());
    if (wrong_ || size != blob_.size_bytes() || crc32_ != blob_.crc32()) {
      done(absl::DataLossError(
          absl::StrFormat("blob %d: %d bytes with crc32 %08x arrived in place of %d with %08x",
                          blob_.blob(), size, crc32_, blob_.size_bytes(), blob_.crc32())));
      return;
    }
    done(std::move(bytes_));
  }

  const v1::BlobRef blob_;
  Done done_;
  std::string bytes_;
  uint32_t crc32_ = 0;  // of bytes_
  bool wrong_ = false;
};

}  // namespace

uint32_t Crc32(absl::string_view bytes, uint32_t before) {
  return static_cast<uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void UploadBlob(std::shared_ptr<GroupSession> session, std::shared_ptr<const std::string> bytes,
                Instant deadline, std::function<void(absl::StatusOr<v1::BlobRef>)> done) {
  std::make_shared<Upload>(std::move(session), std::move(bytes), deadline, std::move(done))
      ->Begin();
}

void DownloadBlob(std::shared_ptr<GroupSession> session, const v1::BlobRef& blob, Instant deadline,
                  std::function<void(absl::StatusOr<std::string>)> done) {
  std::make_shared<Download>(std::move(session), blob, deadline, std::move(done))->Begin();
}

}  // namespace cohort::client
