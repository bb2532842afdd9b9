#include "worker/daemon/methods/streams/write_stream.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/daemon/methods/answer.h"

namespace cohort::worker {

absl::Status CheckRange(const TensorMemory& memory, uint64_t offset, uint64_t size) {
  const auto bytes = static_cast<uint64_t>(memory.bytes);
  if (offset <= bytes && size <= bytes - offset) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(size, " bytes from ", offset, " on; the tensor has ", bytes));
}

grpc::ServerReadReactor<v1::WriteTensorRequest>* WriteStream::Start(
    grpc::CallbackServerContext* context, v1::WriteTensorResponse* response, Caller caller,
    SessionTable& sessions, CallGate& gate, IdleStreamWatch& watch) {
  const std::shared_ptr<WriteStream> stream(
      new WriteStream(context, response, std::move(caller), sessions, gate, watch));
  stream->self_ = stream;
  // Before its first part is parsed.
  absl::Status may = stream->caller_.Require(Role::kMember, "");
  if (may.ok())
    may = watch.Add(stream, {stream->caller_.identity(), std::string(stream->caller_.tenant())});
  if (!may.ok()) {
    stream->End(may);
  } else {
    stream->StartRead(&stream->part_);
  }
  return stream.get();
}

WriteStream::WriteStream(grpc::CallbackServerContext* context, v1::WriteTensorResponse* response,
                         Caller caller, SessionTable& sessions, CallGate& gate,
                         IdleStreamWatch& watch)
    : context_(context),
      response_(response),
      caller_(std::move(caller)),
      sessions_(sessions),
      gate_(gate),
      watch_(watch) {}

void WriteStream::OnReadDone(bool ok) {
  if (!ok) {
    response_->set_written(written_);
    End(session_ != nullptr ? absl::OkStatus() : absl::InvalidArgumentError("nothing was written"));
    return;
  }
  Touch();
  if (const absl::Status taken = Take(); !taken.ok()) {
    End(taken);
    return;
  }
  MutexLock lock(&mutex_);
  if (!ended_) StartRead(&part_);
}

absl::Status WriteStream::Take() {
  if (session_ == nullptr) COHORT_RETURN_IF_ERROR(Begin());
  COHORT_RETURN_IF_ERROR(CheckRange(memory_, at_, part_.bytes().size()));
  std::memcpy(memory_.data + at_, part_.bytes().data(), part_.bytes().size());
  at_ += part_.bytes().size();
  written_ += part_.bytes().size();
  // A stream that waits for its next part keeps no memory of the last one.
  v1::WriteTensorRequest().Swap(&part_);
  return absl::OkStatus();
}

absl::Status WriteStream::Begin() {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                          sessions_.Find(part_.session(), caller_));
  COHORT_ASSIGN_OR_RETURN(memory_, session->tensors().Find(part_.tensor()));
  COHORT_ASSIGN_OR_RETURN(CallGate::Pass pass, gate_.Enter(session->calls()));
  pass_.emplace(std::move(pass));
  session_ = std::move(session);
  at_ = part_.offset();
  watch_.Name(this);
  return absl::OkStatus();
}

void WriteStream::OnIdle(absl::Duration limit) {
  End(absl::DeadlineExceededError(absl::StrCat("the client has sent no part for ",
                                               absl::FormatDuration(limit),
                                               ", as long as --stream-idle-limit allows")));
}

void WriteStream::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
  }
  Finish(Answer(context_, status));
}

void WriteStream::OnDone() {
  watch_.Remove(this);
  const std::shared_ptr<WriteStream> self = std::move(self_);  // unless the watch holds the last
}

}  // namespace cohort::worker
