#include "client/parallel/queue/connections/writer_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/port/peer/grpc_peer.h"
#include "base/rpc/status_conversion.h"
#include "base/text/printable.h"
#include "client/parallel/queue/connections/handshake.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

namespace cohort::parallel {
namespace {

constexpr uint64_t kChunk = uint64_t{512} << 10;
// Smaller values are copied, which costs less than holding the ring.
constexpr uint64_t kShared = uint64_t{4} << 10;

// ReadQueueResponse.data, for bytes that are not copied.
grpc::ByteBuffer DataMessage(const std::shared_ptr<RingMemory>& ring, uint64_t position,
                             uint64_t size) {
  std::string header(1, static_cast<char>(v1::ReadQueueResponse::kDataFieldNumber << 3 | 2));
  for (uint64_t left = size; left > 0 || header.size() == 1; left >>= 7) {
    header.push_back(static_cast<char>((left & 0x7F) | (left > 0x7F ? 0x80 : 0)));
  }
  char* const bytes = ring->AtPosition(position);
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      size < kShared
          ? grpc::Slice(bytes, size)
          : grpc::Slice(
                bytes, size,
                [](void* held) { delete static_cast<std::shared_ptr<RingMemory>*>(held); },
                new std::shared_ptr<RingMemory>(ring))};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer PlainMessage(const v1::ReadQueueResponse& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

void StreamCount::Add(int streams, int readers) {
  MutexLock lock(&mutex_);
  streams_ += streams;
  readers_ += readers;
}

bool StreamCount::AwaitNone(absl::Duration timeout) { return AwaitZero(streams_, timeout); }

bool StreamCount::AwaitNoReaders(absl::Duration timeout) { return AwaitZero(readers_, timeout); }

bool StreamCount::AwaitZero(const int& count, absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto is_zero = [&count] { return count == 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&is_zero), timeout);
}

class WriterStream::StreamSlot final : public ReaderSlot {
 public:
  StreamSlot(std::string name, std::shared_ptr<WriterStream> stream)
      : ReaderSlot(std::move(name),
                   absl::StrCat(stream->handle_.tls() ? "tls " : "", "stream ", stream->peer_)),
        stream_(std::move(stream)) {}

  ReaderPage& page() override { return stream_->page_; }
  // It has had the ticket since the hello.
  void Admitted() override {
    stream_->sent_.store(page().head.load(std::memory_order_relaxed), std::memory_order_relaxed);
    stream_->WriteOn();
  }
  void Wake() override {
    if (stream_->TakeTicket()) stream_->WriteOn();
  }
  // If the stream ends for a reason of its own, that reason stays.
  void Left(absl::string_view why) override { stream_->End(absl::AbortedError(why)); }

 private:
  const std::shared_ptr<WriterStream> stream_;
};

class WriterStream::StreamReactor final : public Reactor {
 public:
  explicit StreamReactor(std::shared_ptr<WriterStream> stream) : stream_(std::move(stream)) {
    stream_->count_->Add(1, 0);
  }
  void Begin(absl::Duration hello_timeout) {
    hello_alarm_.Set(absl::ToChronoTime(absl::Now() + hello_timeout),
                     [weak = std::weak_ptr<WriterStream>(stream_)](bool) {
                       if (const auto stream = weak.lock()) stream->OnHelloTimeout();
                     });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return stream_->End(absl::CancelledError("its process is gone, or its connection"));
    if (stream_->OnRequest(request_)) StartRead(&request_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) stream_->End(absl::CancelledError("its connection is gone"));
    stream_->WriteOn();
  }
  void OnCancel() override {
    stream_->End(absl::CancelledError("its process is gone, or its connection"));
  }
  void OnDone() override {
    const std::shared_ptr<StreamCount> count = stream_->count_;
    const int readers = stream_->slot_ != nullptr ? 1 : 0;
    stream_->slot_ = nullptr;  // the slot holds the stream
    delete this;
    count->Add(-1, -readers);
  }

 private:
  const std::shared_ptr<WriterStream> stream_;
  grpc::ByteBuffer request_;
  grpc::Alarm hello_alarm_;
};

WriterStream::WriterStream(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
                           std::shared_ptr<StreamCount> count, const std::string& peer)
    : writer_(std::move(writer)),
      handle_(handle),
      count_(std::move(count)),
      peer_(ClientOfGrpcPeer(peer).address) {
  page_.awaited_head.store(kNobody);
  page_.reader_sleeps.store(1);  // the ticket is free
}

WriterStream::Reactor* WriterStream::Start(std::shared_ptr<RingWriter> writer,
                                           const v1::QueueHandle& handle,
                                           std::shared_ptr<StreamCount> count,
                                           absl::Duration hello_timeout,
                                           grpc::CallbackServerContext* context) {
  const std::shared_ptr<WriterStream> stream(
      new WriterStream(std::move(writer), handle, std::move(count), context->peer()));
  auto* const reactor = new StreamReactor(stream);
  stream->reactor_ = reactor;
  reactor->Begin(hello_timeout);
  return reactor;
}

bool WriterStream::OnRequest(const grpc::ByteBuffer& bytes) {
  v1::ReadQueueRequest request;
  grpc::ByteBuffer copy(bytes);
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok() || !request.ParseFromZeroCopyStream(&reader)) {
    End(absl::InvalidArgumentError("a malformed ReadQueueRequest"));
    return false;
  }
  switch (request.step_case()) {
    case v1::ReadQueueRequest::kHello:
      return OnHello(request.hello());
    case v1::ReadQueueRequest::kProgress:
      return OnProgress(request.progress());
    case v1::ReadQueueRequest::kLeaves:
      End(absl::CancelledError(absl::StrCat("it left: ", Printable(request.leaves().reason()))));
      return false;
    default:
      End(absl::InvalidArgumentError("a request without a step"));
      return false;
  }
}

bool WriterStream::OnHello(const v1::QueueHello& hello) {
  absl::Status status = CheckHello(hello, handle_);
  if (slot_ != nullptr) status = absl::InvalidArgumentError("a second hello");
  if (!status.ok()) {
    End(status);
    return false;
  }
  greeted_.store(true);
  if (!TakeTicket()) return false;  // cancelled meanwhile
  slot_ = std::make_shared<StreamSlot>(Printable(hello.name()), shared_from_this());
  count_->Add(0, 1);
  writer_->Admit(slot_);
  return true;
}

void WriterStream::OnHelloTimeout() {
  if (!greeted_.load()) End(absl::DeadlineExceededError("its hello did not come"));
}

bool WriterStream::OnProgress(const v1::QueueProgress& progress) {
  const uint64_t head = page_.head.load(std::memory_order_relaxed);
  const uint64_t sent = sent_.load(std::memory_order_acquire);
  if (slot_ == nullptr || progress.position() < head || progress.position() > sent ||
      progress.position() % kRecordAlign != 0) {
    End(absl::InvalidArgumentError(absl::StrCat("it claims to have read up to ",
                                                progress.position(), ", which is not between ",
                                                head, " and ", sent)));
    return false;
  }
  page_.values.fetch_add(progress.values(), std::memory_order_relaxed);
  MoveHead(page_, progress.position());
  return true;
}

void WriterStream::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
  }
  over_.store(true, std::memory_order_seq_cst);
  if (TakeTicket()) FinishCall();
}

void WriterStream::FinishCall() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = status_;
  }
  // Otherwise the writer would hold the slot, and the slot the writer.
  if (slot_ != nullptr) writer_->Leave(*slot_, status.message());
  reactor_->Finish(ToGrpcStatus(end_sent_ ? absl::OkStatus() : status));
}

void WriterStream::WriteOn() {
  const std::shared_ptr<WriterStream> self = shared_from_this();
  while (true) {
    message_.Clear();
    if (over_.load(std::memory_order_seq_cst) || end_sent_) return FinishCall();
    if (!welcomed_) {
      welcomed_ = true;
      v1::ReadQueueResponse response;
      *response.mutable_welcome() = WelcomeOf(handle_, sent_.load(std::memory_order_relaxed));
      message_ = PlainMessage(response);
      return reactor_->StartWrite(&message_);
    }
    // The end is set after the last bytes.
    const RingHeader& header = writer_->ring()->header();
    const bool ended = header.ended.load(std::memory_order_seq_cst) != 0;
    const uint64_t sent = sent_.load(std::memory_order_relaxed);
    const uint64_t there = writer_->tail() - sent;
    if (there > 0) {
      const uint64_t size = std::min(there, kChunk);
      message_ = DataMessage(writer_->ring(), sent, size);
      sent_.store(sent + size, std::memory_order_release);
      return reactor_->StartWrite(&message_);
    }
    if (ended) {
      end_sent_ = true;
      v1::ReadQueueResponse response;
      // The writer has made the reason UTF-8.
      response.mutable_end()->set_reason(std::string(header.reason, header.reason_size));
      message_ = PlainMessage(response);
      return reactor_->StartWrite(&message_);
    }
    page_.reader_sleeps.store(1, std::memory_order_seq_cst);
    // From here on another thread may have the ticket, and the reactor may end.
    if (writer_->tail() == sent && !over_.load(std::memory_order_seq_cst) &&
        header.ended.load(std::memory_order_seq_cst) == 0) {
      return;
    }
    if (!TakeTicket()) return;
  }
}

}  // namespace cohort::parallel
