#include "client/parallel/queue/queue_ends.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/port/socket/listen_address.h"
#include "base/rpc/rank_tls.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "base/tls/tls_context.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/connections/local_reader.h"
#include "client/parallel/queue/connections/remote_reader.h"
#include "client/parallel/queue/ring/available_memory.h"
#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {
namespace {

constexpr int64_t kLeastBytes = 4096;
constexpr int64_t kMostBytes = int64_t{1} << 34;
constexpr int64_t kMostValueBytes = int64_t{1} << 40;
// Limits one address, so that one that does not answer leaves time for those after it.
constexpr absl::Duration kOneAddress = absl::Seconds(5);

WaitLimit WaitLimitOf(const QueueCall& call, absl::Duration usual) {
  return {call.timeout.value_or(usual), call.cancellation};
}

absl::Status About(const std::string& name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

absl::Status NotA(const std::string& name, const char* who, const char* call) {
  return absl::FailedPreconditionError(
      absl::StrCat(name, ": ", call, " is not a call of its ", who));
}

}  // namespace

absl::Status MessageQueue::DequeueView(absl::FunctionRef<absl::Status(absl::string_view)> use,
                                       const QueueCall& call) {
  COHORT_ASSIGN_OR_RETURN(const QueueView view, AcquireView(call));
  return use(view.value());
}

absl::Status CheckOptions(const QueueOptions& options) {
  if (options.block_bytes <= 0 || options.blocks <= 0 ||
      options.block_bytes > kMostBytes / options.blocks ||
      options.block_bytes * options.blocks < kLeastBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_bytes ", options.block_bytes, " times blocks ", options.blocks,
                     " is not a size of ", kLeastBytes, " to ", kMostBytes));
  }
  if (options.max_value_bytes <= 0 || options.max_value_bytes > kMostValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_value_bytes ", options.max_value_bytes,
                                                   " is not one of 1 to ", kMostValueBytes));
  }
  if (options.timeout <= absl::ZeroDuration() || options.join_timeout <= absl::ZeroDuration() ||
      options.linger < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "timeout and join_timeout are above zero, linger is not below");
  }
  if (WireText(options.advertise, kMostNameBytes) != options.advertise) {
    return absl::InvalidArgumentError("advertise is no name or address of a host");
  }
  return absl::OkStatus();
}

// --- The writer.

absl::StatusOr<std::unique_ptr<WriterQueue>> WriterQueue::Make(const std::string& name,
                                                               const std::string& writer,
                                                               bool alone,
                                                               const QueueOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckOptions(options));
  const int64_t bytes = options.block_bytes * options.blocks;
  const absl::Status room = CheckAvailableMemory(static_cast<uint64_t>(bytes));
  if (!room.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(name, " (", options.blocks, " blocks of ",
                                                     options.block_bytes, "): ", room.message()));
  }
  absl::StatusOr<std::shared_ptr<RingMemory>> memory = RingMemory::Create(bytes);
  if (!memory.ok()) return About(name, memory.status());
  v1::QueueHandle handle;
  handle.set_version(kQueueVersion);
  handle.set_name(WireText(name, kMostNameBytes));
  handle.set_writer(WireText(writer, kMostNameBytes));
  handle.set_token(NewToken());
  handle.set_capacity_bytes(static_cast<int64_t>((*memory)->capacity()));
  handle.set_max_value_bytes(options.max_value_bytes);
  auto ring = std::make_shared<RingWriter>(*std::move(memory), alone);
  auto queue = absl::WrapUnique(new WriterQueue(options, std::move(ring), std::move(handle)));
  // No other process can map such a ring: all readers take streams.
  if (queue->ring_->ring()->fd() < 0) {
    COHORT_RETURN_IF_ERROR(queue->Listen());
    return queue;
  }
  absl::StatusOr<std::unique_ptr<LocalAcceptor>> acceptor =
      LocalAcceptor::Open(queue->ring_, queue->handle_);
  if (!acceptor.ok()) return About(name, acceptor.status());
  queue->acceptor_ = *std::move(acceptor);
  queue->handle_.set_local(queue->acceptor_->name());
  queue->handle_.set_local_folder(queue->acceptor_->folder());
  if (!options.listen.empty()) COHORT_RETURN_IF_ERROR(queue->Listen());
  return queue;
}

absl::Status WriterQueue::Listen() {
  if (server_ != nullptr) return absl::OkStatus();
  StreamServerOptions options;
  options.listen = options_.listen;
  options.advertise = options_.advertise;
  absl::StatusOr<RankTls> tls = RankTlsOfEnvironment();
  if (!tls.ok()) return About(name(), tls.status());
  if (IsTlsElsewhere(tls->state)) {
    return About(name(), absl::FailedPreconditionError(absl::StrCat(
                             "readers of other hosts would get plain text, and this process ",
                             DescribeTls(tls->state),
                             ". Give it COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, "
                             "or COHORT_RANK_TLS=off")));
  }
  options.tls = *std::move(tls);
  if (options.tls.state == TlsState::kOn) {
    const auto context = TlsContext::Load(options.tls.files, TlsSide::kServer);
    if (!context.ok()) return About(name(), context.status());
    handle_.set_tls(true);
    handle_.set_certificate_name((*context)->name());
  }
  absl::StatusOr<std::unique_ptr<StreamServer>> server =
      StreamServer::Start(options, ring_, handle_);
  if (!server.ok()) return About(name(), server.status());
  server_ = *std::move(server);
  for (const std::string& address : server_->addresses()) handle_.add_addresses(address);
  if (options.listen.empty() && options.advertise.empty()) {
    handle_.set_port(static_cast<uint32_t>(server_->port()));
  }
  return absl::OkStatus();
}

WriterQueue::~WriterQueue() {
  ring_->End("its writer has left");
  if (server_ != nullptr) server_->Finish(options_.linger);
}

absl::Status WriterQueue::Enqueue(absl::string_view value, const QueueCall& call) {
  if (value.size() > static_cast<uint64_t>(options_.max_value_bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(name(), ": a value of ", value.size(),
                                                     " bytes, max_value_bytes is ",
                                                     options_.max_value_bytes));
  }
  return About(name(), ring_->Write(value, WaitLimitOf(call, options_.timeout)));
}

absl::StatusOr<std::string> WriterQueue::Broadcast(absl::string_view value, const QueueCall& call) {
  COHORT_RETURN_IF_ERROR(Enqueue(value, call));
  return std::string(value);
}

absl::StatusOr<std::string> WriterQueue::Dequeue(const QueueCall&) {
  return NotA(name(), "writer", "Dequeue");
}
absl::StatusOr<QueueView> WriterQueue::AcquireView(const QueueCall&) {
  return NotA(name(), "writer", "DequeueView");
}

absl::Status WriterQueue::AwaitReaders(int count, const QueueCall& call) {
  const WaitLimit limit = WaitLimitOf(call, options_.timeout);
  const auto there = [&] { return ring_->readers().size(); };
  if (ring_->AwaitChange([&] { return there() >= static_cast<size_t>(std::max(count, 0)); },
                         limit)) {
    return absl::OkStatus();
  }
  if (ring_->ended()) return absl::CancelledError(absl::StrCat(name(), ": it was shut down"));
  if (const absl::Status reason = limit.Cancelled(); !reason.ok()) return About(name(), reason);
  return absl::DeadlineExceededError(
      absl::StrCat(name(), ": ", there(), " of ", count, " readers have come"));
}

// --- A reader.

ReaderQueue::ReaderQueue(const v1::QueueHandle& handle, const QueueOptions& options,
                         std::unique_ptr<ByteSource> source)
    : name_(Printable(handle.name())),
      writer_(Printable(handle.writer())),
      timeout_(options.timeout),
      source_(std::move(source)),
      records_(*source_, static_cast<uint64_t>(handle.max_value_bytes())) {}

absl::StatusOr<std::unique_ptr<ReaderQueue>> ReaderQueue::Open(const v1::QueueHandle& handle,
                                                               const std::string& reader,
                                                               const Route& route,
                                                               const QueueOptions& options,
                                                               Instant deadline, bool* no_stream) {
  *no_stream = false;
  std::string why;
  absl::Status last = absl::UnavailableError("no route was tried");
  const auto cancelled = [&] {
    return options.cancellation == nullptr ? absl::OkStatus() : options.cancellation->reason();
  };
  if (route.memory) {
    absl::StatusOr<std::unique_ptr<ByteSource>> source =
        OpenLocalReader(handle, reader, WaitLimit(deadline, options.cancellation));
    if (source.ok()) {
      return absl::WrapUnique(new ReaderQueue(handle, options, *std::move(source)));
    }
    last = source.status();
    why = absl::StrCat("shared memory: ", last.message(), "; ");
    // The writer is there, and refuses this reader.
    if (last.code() == absl::StatusCode::kFailedPrecondition) return About(handle.name(), last);
    if (const absl::Status reason = cancelled(); !reason.ok()) return About(handle.name(), reason);
  }
  const absl::StatusOr<RankTls> tls = RankTlsOfEnvironment();
  if (!tls.ok()) return About(handle.name(), tls.status());
  std::vector<std::string> addresses(handle.addresses().begin(), handle.addresses().end());
  if (handle.port() != 0 && !route.reached_at.empty()) {
    addresses.insert(addresses.begin(),
                     HostAndPort(route.reached_at, static_cast<int>(handle.port())));
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool is_last = i + 1 == addresses.size();
    const Instant limit =
        is_last ? deadline : std::min(deadline, Clock::Steady().Now() + kOneAddress);
    absl::StatusOr<std::unique_ptr<ByteSource>> source = OpenStreamReader(
        handle, addresses[i], reader, *tls, WaitLimit(limit, options.cancellation));
    if (source.ok()) {
      return absl::WrapUnique(new ReaderQueue(handle, options, *std::move(source)));
    }
    last = source.status();
    if (const absl::Status reason = cancelled(); !reason.ok()) return About(handle.name(), reason);
    absl::StrAppend(&why, "stream: ", last.message(), "; ");
  }
  *no_stream = addresses.empty();
  if (addresses.empty()) absl::StrAppend(&why, "its writer serves no streams");
  const absl::StatusCode code = addresses.empty() ? absl::StatusCode::kUnavailable : last.code();
  return absl::Status(code, absl::StrCat(handle.name(), ": ", handle.writer(),
                                         " cannot be reached by ", reader, ": ", why));
}

absl::Status ReaderQueue::Enter() {
  if (shut_.load(std::memory_order_seq_cst)) return WhyShut();
  if (busy_.exchange(true, std::memory_order_seq_cst)) {
    if (shut_.load(std::memory_order_seq_cst)) return WhyShut();
    return absl::FailedPreconditionError(
        absl::StrCat(name_, ": another thread is reading a value, or a view of one is open"));
  }
  if (!shut_.load(std::memory_order_seq_cst)) return absl::OkStatus();
  Exit();
  return WhyShut();
}

void ReaderQueue::Exit() {
  busy_.store(false, std::memory_order_seq_cst);
  LeaveUnlessReading();
}

void ReaderQueue::LeaveUnlessReading() {
  // A thread that reads does this itself when it ends reading.
  if (!shut_.load(std::memory_order_seq_cst) || busy_.exchange(true, std::memory_order_seq_cst)) {
    return;
  }
  std::string reason;
  {
    MutexLock lock(&mutex_);
    reason = shut_reason_;
  }
  if (!std::exchange(left_, true)) source_->Leave(absl::StrCat("it was shut down: ", reason));
  busy_.store(false, std::memory_order_seq_cst);
}

absl::Status ReaderQueue::WhyShut() const {
  MutexLock lock(&mutex_);
  return absl::CancelledError(absl::StrCat(name_, ": this reader was shut down: ", shut_reason_));
}

absl::Status ReaderQueue::Explain(const absl::Status& status, const QueueCall& call) const {
  if (status.code() == absl::StatusCode::kDeadlineExceeded && status.message().empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat(name_, ": no value came from ", writer_, " within ",
                     absl::FormatDuration(call.timeout.value_or(timeout_))));
  }
  return About(name_, status);
}

absl::StatusOr<std::string> ReaderQueue::Dequeue(const QueueCall& call) {
  COHORT_RETURN_IF_ERROR(Enter());
  const absl::Cleanup leave = [this] { Exit(); };
  absl::StatusOr<std::string> value = records_.Next(WaitLimitOf(call, timeout_));
  if (!value.ok()) return Explain(value.status(), call);
  return value;
}

absl::StatusOr<QueueView> ReaderQueue::AcquireView(const QueueCall& call) {
  COHORT_RETURN_IF_ERROR(Enter());
  absl::Cleanup leave = [this] { Exit(); };
  const absl::StatusOr<absl::string_view> value = records_.Front(WaitLimitOf(call, timeout_));
  if (!value.ok()) return Explain(value.status(), call);
  std::move(leave).Cancel();
  return QueueView(*this, *value);
}

void ReaderQueue::EndView() {
  records_.Pop();
  Exit();
}

absl::StatusOr<std::string> ReaderQueue::Broadcast(absl::string_view, const QueueCall& call) {
  return Dequeue(call);
}

absl::Status ReaderQueue::Enqueue(absl::string_view, const QueueCall&) {
  return NotA(name_, "readers", "Enqueue");
}
absl::Status ReaderQueue::AwaitReaders(int, const QueueCall&) {
  return NotA(name_, "readers", "AwaitReaders");
}

void ReaderQueue::Shutdown(absl::string_view reason) {
  {
    MutexLock lock(&mutex_);
    if (shut_.load(std::memory_order_seq_cst)) return;
    shut_reason_ = std::string(reason);
    shut_.store(true, std::memory_order_seq_cst);
  }
  source_->Stop(absl::CancelledError(absl::StrCat("this reader was shut down: ", reason)));
  LeaveUnlessReading();
}

}  // namespace cohort::parallel
