// One file, though long: one lock guards everything that a session opens, calls, listens to and
// gives back.
#include "client/collective/remote/worker_session_impl.h"

#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/abort_error.h"
#include "base/host_name.h"
#include "base/rpc/answered_by_worker.h"
#include "base/rpc/client_channel.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "base/threads/hooked_call.h"
#include "base/threads/thread.h"

namespace cohort::client {
namespace {

using Stub = v1::WorkerService::Stub;

// The worker's answer to an expired timeout arrives within this time.
constexpr absl::Duration kMargin = absl::Seconds(2);
// Limits calls that do not wait for other ranks.
constexpr absl::Duration kShortTimeout = absl::Seconds(10);
// For the error of a channel that does not connect.
constexpr absl::Duration kForLastError = absl::Milliseconds(200);
constexpr absl::Duration kEndOnItsWay = absl::Milliseconds(500);
constexpr int64_t kPartBytes = int64_t{1} << 20;
constexpr int64_t kMinScratch = int64_t{64} << 10;
// sun_path without its last byte, which is 0.
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kShownAddress = 256;

// Refuses addresses that gRPC would try until the timeout, or take for another kind of name. Host
// names are left to the resolver.
absl::Status CheckAddress(absl::string_view address) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the worker's address \"", absl::CHexEscape(address.substr(0, kShownAddress)),
                     address.size() > kShownAddress ? "..." : "", "\": ", why));
  };
  if (absl::StartsWith(address, "unix:")) {
    absl::string_view path = absl::StripPrefix(address, "unix:");
    // "unix:///path" is the same.
    if (absl::StartsWith(path, "//")) path.remove_prefix(2);
    if (path.empty()) return refuse("it has no path");
    if (path.size() > kMaxPathBytes) {
      return refuse(absl::StrCat("its path has ", path.size(), " bytes; that of a Unix socket has ",
                                 kMaxPathBytes, " at most"));
    }
    if (path.find('\0') != absl::string_view::npos) return refuse("its path has a byte 0");
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return refuse("it is not host:port, [ipv6]:port or unix:/path");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<WorkerSession>> WorkerSession::Connect(
    const WorkerSessionOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckAddress(options.address));
  COHORT_ASSIGN_OR_RETURN(ClientTls tls, ClientTlsOfEnvironment(options.address));
  auto session = std::make_shared<WorkerSessionImpl>(options, std::move(tls));
  COHORT_RETURN_IF_ERROR(session->Open());
  return session;
}

WorkerSessionImpl::WorkerSessionImpl(const WorkerSessionOptions& options, ClientTls tls)
    : options_(options),
      tls_(std::move(tls)),
      stub_(v1::WorkerService::NewStub(CreateClientChannel(options.address, {}, tls_.grpc))),
      worker_(absl::StrCat("the worker at ", options.address)) {}

WorkerSessionImpl::~WorkerSessionImpl() {
  // The worker frees the rest.
  stream_context_.TryCancel();
  if (listener_.joinable()) listener_.join();
}

absl::Status WorkerSessionImpl::Open() {
  const Instant deadline = Clock::Steady().Now() + options_.connect_timeout;
  const CallCancellations cancellations(nullptr);
  const CallCancellations::Listener on_cancel(cancellations,
                                              [this] { stream_context_.TryCancel(); });
  stream_context_.set_wait_for_ready(true);
  COHORT_ASSIGN_OR_RETURN(listener_, StartThread("cohort-session", [this] { Listen(); }));
  bool answered = false;
  {
    MutexLock lock(&mutex_);
    const auto decided = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return opened_yet_ || ended_.has_value();
    };
    answered = mutex_.AwaitWithTimeout(absl::Condition(&decided), deadline - Clock::Steady().Now());
    if (ended_.has_value()) {
      const absl::Status cancelled = cancellations.reason();
      return cancelled.ok() ? *ended_ : cancelled;
    }
    if (answered)
      absl::StrAppend(&worker_, " (process ", opened_.pid(), " on ", opened_.host(), ")");
  }
  if (!answered) {
    return absl::UnavailableError(absl::StrCat(worker_, " does not answer within ",
                                               absl::FormatDuration(options_.connect_timeout),
                                               WhyNotConnected()));
  }
  if (!options_.attach) {
    why_not_attached_ = "it was not asked for";
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(const shm::HostFolder folder,
                          shm::HostFolder::Open(options_.host_folder));
  absl::StatusOr<std::unique_ptr<AttachConnection>> attached =
      AttachConnection::Connect(folder.AddressOf(opened_.attach_socket(), opened_.attach_folder()),
                                opened_.session(), Clock::Steady().Now() + kShortTimeout);
  if (attached.ok()) {
    attached_ = *std::move(attached);
    return absl::OkStatus();
  }
  why_not_attached_ = std::string(attached.status().message());
  if (absl::IsUnavailable(attached.status())) {
    absl::StrAppend(&why_not_attached_, WhyNotReached(folder));
  }
  return absl::OkStatus();
}

std::string WorkerSessionImpl::WhyNotReached(const shm::HostFolder& folder) const {
  const bool has_folder = !opened_.attach_folder().empty();
  if (has_folder && opened_.attach_folder() == folder.id()) return "";
  return absl::StrCat(
      ". A worker on this machine in another network namespace (container, pod) needs this "
      "process's user and a folder that both mount, in COHORT_HOST_FOLDER: the worker has ",
      has_folder ? "one" : "none", ", this process ",
      folder.empty() ? "none" : (has_folder ? "another one" : "one"));
}

std::string WorkerSessionImpl::WhyNotConnected() {
  // A channel that cannot connect fails the call at once, with its last error.
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kForLastError));
  v1::GetWorkerResponse response;
  const grpc::Status status = stub_->GetWorker(&context, {}, &response);
  return status.error_code() == grpc::StatusCode::UNAVAILABLE
             ? absl::StrCat(": ", status.error_message())
             : "";
}

void WorkerSessionImpl::Listen() {
  v1::OpenSessionRequest request;
  request.set_client(options_.client_name.empty() ? program_invocation_short_name
                                                  : options_.client_name);
  request.set_pid(getpid());
  request.set_host(HostName());
  const std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> reader =
      stub_->OpenSession(&stream_context_, request);
  v1::SessionEvent event;
  while (reader->Read(&event)) {
    MutexLock lock(&mutex_);
    if (event.has_opened() && !opened_yet_) {
      opened_ = event.opened();
      opened_yet_ = true;
    } else if (event.has_group_ended()) {
      OnGroupEnded(event.group_ended());
    } else if (event.has_rank_left()) {
      OnRankLeft(event.rank_left());
    }
  }
  const grpc::Status status = reader->Finish();
  bool answered = stream_context_.GetServerTrailingMetadata().count(kAnsweredKey) > 0;
  MutexLock lock(&mutex_);
  if (answered && !opened_yet_) {
    ended_ = FromGrpcStatus(status);  // refused
  } else if (!opened_yet_) {
    ended_ = absl::UnavailableError(
        absl::StrCat(worker_, " cannot be reached: ", status.error_message()));
  } else {
    ended_ = absl::AbortedError(absl::StrCat(worker_, " is gone: ", status.error_message()));
  }
  for (const auto& [group, watched] : watched_)
    watched.callbacks.on_end(std::string(ended_->message()), true);
  watched_.clear();
}

void WorkerSessionImpl::OnGroupEnded(const v1::GroupEnded& ended) {
  GroupEnd& end = group_ends_[ended.group()];
  if (ended.generation() <= end.generation) return;
  end = {ended.generation(), ended.cause()};
  const auto watched = watched_.find(ended.group());
  if (watched == watched_.end() || watched->second.generation != end.generation) return;
  const GroupCallbacks callbacks = std::move(watched->second.callbacks);
  watched_.erase(watched);
  callbacks.on_end(end.cause, false);
}

void WorkerSessionImpl::OnRankLeft(const v1::RankLeft& left) {
  Leavers& leavers = leavers_[left.group()];
  if (left.generation() < leavers.generation) return;
  if (left.generation() > leavers.generation) leavers = {left.generation(), {}};
  if (!leavers.causes.emplace(left.rank(), left.cause()).second) return;
  const auto watched = watched_.find(left.group());
  if (watched == watched_.end() || watched->second.generation != left.generation()) return;
  watched->second.callbacks.on_left(left.rank(), left.cause());
}

void WorkerSessionImpl::Watch(uint64_t group, int64_t generation, GroupCallbacks callbacks) {
  MutexLock lock(&mutex_);
  watched_.erase(group);
  if (ended_.has_value()) return callbacks.on_end(std::string(ended_->message()), true);
  const auto end = group_ends_.find(group);
  if (end != group_ends_.end() && end->second.generation == generation) {
    return callbacks.on_end(end->second.cause, false);
  }
  const auto leavers = leavers_.find(group);
  if (leavers != leavers_.end() && leavers->second.generation == generation) {
    for (const auto& [rank, cause] : leavers->second.causes) callbacks.on_left(rank, cause);
  }
  watched_[group] = {generation, std::move(callbacks)};
}

void WorkerSessionImpl::Unwatch(uint64_t group) {
  MutexLock lock(&mutex_);
  watched_.erase(group);
}

void WorkerSessionImpl::SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(GrpcDeadline(timeout + kMargin));
}

std::unique_ptr<FramedCollectiveClient> WorkerSessionImpl::MakeFramedClient() const {
  return std::make_unique<FramedCollectiveClient>(options_.address, max_message_bytes(), tls_);
}

absl::Status WorkerSessionImpl::RunCollective(FramedCollectiveClient& framed,
                                              v1::RunCollectiveRequest& request,
                                              absl::Duration timeout,
                                              v1::RunCollectiveResponse* response, bool* answered) {
  request.set_session(opened_.session());
  FramedCollectiveClient::Answer answer;
  if (!framed.Run(request, timeout + kMargin, response, &answer)) {
    return Call(&Stub::RunCollective, request, timeout, response, answered);
  }
  return Read(answer.status, answer.from_worker, answered);
}

absl::Status WorkerSessionImpl::Read(const grpc::ClientContext& context, const grpc::Status& status,
                                     bool* answered) const {
  return Read(status, context.GetServerTrailingMetadata().count(kAnsweredKey) > 0, answered);
}

absl::Status WorkerSessionImpl::Read(const grpc::Status& status, bool from_worker,
                                     bool* answered) const {
  if (answered != nullptr) *answered = status.ok() || from_worker;
  if (status.ok()) return absl::OkStatus();
  if (from_worker) {
    absl::Status said = FromGrpcStatus(status);
    // The worker does not know a session that has ended. The reason of its end tells more, and may
    // be on its way.
    if (!absl::IsNotFound(said)) return said;
    MutexLock lock(&mutex_);
    const auto known = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_.has_value(); };
    return mutex_.AwaitWithTimeout(absl::Condition(&known), kEndOnItsWay) ? *ended_ : said;
  }
  {
    // The stream and the call break together, and either may be seen first.
    MutexLock lock(&mutex_);
    if (ended_.has_value()) return *ended_;
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat(worker_, " has not answered in time"));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::AbortedError(absl::StrCat(worker_, " is gone: ", status.error_message()));
  }
  // For example a message that is larger than the worker accepts.
  return absl::Status(FromGrpcStatus(status).code(),
                      absl::StrCat(worker_, ": ", status.error_message()));
}

absl::Status WorkerSessionImpl::WriteTensor(uint64_t tensor, const void* from, int64_t bytes,
                                            absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::WriteTensorResponse response;
  const std::unique_ptr<grpc::ClientWriter<v1::WriteTensorRequest>> writer =
      stub_->WriteTensor(&context, &response);
  const int64_t part_bytes = std::min(kPartBytes, max_message_bytes() / 2);
  const char* at = static_cast<const char*>(from);
  v1::WriteTensorRequest part;
  part.set_session(opened_.session());
  part.set_tensor(tensor);
  for (int64_t left = bytes; left > 0;) {
    const int64_t size = std::min(left, part_bytes);
    part.set_bytes(at, static_cast<size_t>(size));
    if (!writer->Write(part)) break;  // Finish returns the error
    at += size;
    left -= size;
    part.Clear();
  }
  writer->WritesDone();
  return Read(context, writer->Finish(), nullptr);
}

absl::Status WorkerSessionImpl::ReadTensor(uint64_t tensor, void* to, int64_t bytes,
                                           absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::ReadTensorRequest request;
  request.set_session(opened_.session());
  request.set_tensor(tensor);
  request.set_size(static_cast<uint64_t>(bytes));
  const std::unique_ptr<grpc::ClientReader<v1::ReadTensorResponse>> reader =
      stub_->ReadTensor(&context, request);
  auto* at = static_cast<char*>(to);
  int64_t left = bytes;
  v1::ReadTensorResponse part;
  while (reader->Read(&part)) {
    const auto size = static_cast<int64_t>(part.bytes().size());
    if (size > left) {
      context.TryCancel();
      break;
    }
    std::copy(part.bytes().begin(), part.bytes().end(), at);
    at += size;
    left -= size;
  }
  COHORT_RETURN_IF_ERROR(Read(context, reader->Finish(), nullptr));
  if (left > 0) {
    return absl::DataLossError(
        absl::StrCat(worker_, " sent ", bytes - left, " of ", bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> WorkerSessionImpl::CreateTensor(DataType type, const Shape& shape) {
  v1::CreateTensorRequest request;
  request.mutable_layout()->set_data_type(static_cast<int>(type));
  for (const int64_t extent : shape) request.mutable_layout()->add_shape(extent);
  v1::CreateTensorResponse response;
  COHORT_RETURN_IF_ERROR(Call(&Stub::CreateTensor, request, kShortTimeout, &response));
  const auto offset = static_cast<int64_t>(response.offset());
  const int64_t bytes = ElementCount(shape) * SizeOf(type);
  char* const data = attached_->segment().At(offset, static_cast<size_t>(bytes));
  if (data == nullptr) {
    return absl::InternalError(absl::StrCat(worker_, " gave memory that is not its own"));
  }
  {
    MutexLock lock(&mutex_);
    blocks_[offset] = {response.tensor(), bytes};
  }
  std::shared_ptr<const void> owner(
      data, [session = shared_from_this(), offset, tensor = response.tensor()](const void*) {
        {
          MutexLock lock(&session->mutex_);
          session->blocks_.erase(offset);
        }
        session->FreeTensor(tensor);
      });
  return Tensor(data, type, shape, std::move(owner));
}

void WorkerSessionImpl::FreeTensor(uint64_t tensor) {
  {
    MutexLock lock(&mutex_);
    if (ended_.has_value()) return;
  }
  v1::FreeTensorRequest request;
  request.set_tensor(tensor);
  v1::FreeTensorResponse response;
  Notify(&Stub::FreeTensor, request, &response);
}

std::optional<WorkerSessionImpl::Location> WorkerSessionImpl::Find(const Tensor& tensor) const {
  if (attached_ == nullptr) return std::nullopt;
  const std::optional<int64_t> offset = attached_->segment().OffsetOf(tensor.data(), 1);
  if (!offset.has_value()) return std::nullopt;
  MutexLock lock(&mutex_);
  auto block = blocks_.upper_bound(*offset);
  if (block == blocks_.begin()) return std::nullopt;
  --block;
  const int64_t at = *offset - block->first;
  const int64_t element = SizeOf(tensor.type());
  if (at >= block->second.bytes || at % element != 0) return std::nullopt;
  return Location{block->second.tensor, at / element};
}

absl::StatusOr<WorkerSessionImpl::Scratch> WorkerSessionImpl::TakeScratch(int64_t bytes) {
  {
    // The smallest scratch that is large enough.
    MutexLock lock(&mutex_);
    auto best = scratch_.end();
    for (auto one = scratch_.begin(); one != scratch_.end(); ++one) {
      if (one->bytes >= bytes && (best == scratch_.end() || one->bytes < best->bytes)) best = one;
    }
    if (best != scratch_.end()) {
      const Scratch taken = *best;
      scratch_.erase(best);
      scratch_bytes_ -= taken.bytes;
      return taken;
    }
  }
  // Sizes grow in steps, so that calls of about the same size share scratch.
  int64_t size = kMinScratch;
  while (size < bytes && size < kPartBytes) size *= 2;
  size = std::max(size, (bytes + kPartBytes - 1) / kPartBytes * (size < bytes ? kPartBytes : 0));
  v1::CreateTensorRequest request;
  request.mutable_layout()->set_data_type(static_cast<int>(DataType::kU8));
  request.mutable_layout()->add_shape(size);
  v1::CreateTensorResponse response;
  COHORT_RETURN_IF_ERROR(Call(&Stub::CreateTensor, request, kShortTimeout, &response));
  Scratch scratch = {response.tensor(), size, nullptr};
  if (attached_ != nullptr) {
    scratch.data =
        attached_->segment().At(static_cast<int64_t>(response.offset()), static_cast<size_t>(size));
  }
  return scratch;
}

void WorkerSessionImpl::GiveBack(const Scratch& scratch, bool reusable) {
  {
    MutexLock lock(&mutex_);
    if (reusable && scratch_bytes_ + scratch.bytes <= kKeptScratch) {
      scratch_.push_back(scratch);
      scratch_bytes_ += scratch.bytes;
      return;
    }
  }
  FreeTensor(scratch.tensor);
}

absl::Status WorkerSessionImpl::Standing(uint64_t group, int64_t generation) const {
  MutexLock lock(&mutex_);
  if (ended_.has_value()) return *ended_;
  const auto end = group_ends_.find(group);
  if (end == group_ends_.end() || end->second.generation < generation) return absl::OkStatus();
  return AbortError(end->second.cause);
}

}  // namespace cohort::client
