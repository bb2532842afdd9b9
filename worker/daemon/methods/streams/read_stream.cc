#include "worker/daemon/methods/streams/read_stream.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memory/no_memory.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/streams/write_stream.h"

namespace cohort::worker {
namespace {

// The part, its bytes on the wire, and those of the part before, which gRPC holds until the client
// takes them.
constexpr int64_t kPartsInMemory = 3;
// Tensors may take the whole quota, and their clients read them all the same: so many streams of the
// daemon may go on without room.
constexpr int kMostWithoutRoom = 16;
std::atomic<int> streams_without_room{0};

}  // namespace

ReadStream::~ReadStream() {
  if (without_room_) --streams_without_room;
}

grpc::ServerWriteReactor<v1::ReadTensorResponse>* ReadStream::Start(
    grpc::CallbackServerContext* context, const v1::ReadTensorRequest* request, int64_t part_bytes,
    const Caller& caller, SessionTable& sessions, CallGate& gate, IdleStreamWatch& watch) {
  const std::shared_ptr<ReadStream> stream(new ReadStream(context, part_bytes, watch));
  stream->self_ = stream;
  absl::Status begun = stream->Begin(*request, caller, sessions, gate);
  if (begun.ok()) begun = watch.AddNamed(stream);
  if (begun.ok()) {
    stream->Continue();
  } else {
    stream->Finish(Answer(context, begun));
  }
  return stream.get();
}

absl::Status ReadStream::Begin(const v1::ReadTensorRequest& request, const Caller& caller,
                               SessionTable& sessions, CallGate& gate) {
  COHORT_ASSIGN_OR_RETURN(session_, sessions.Find(request.session(), caller));
  COHORT_ASSIGN_OR_RETURN(memory_, session_->tensors().Find(request.tensor()));
  COHORT_RETURN_IF_ERROR(CheckRange(memory_, request.offset(), request.size()));
  memory_of_parts_ = session_->CountCall();
  const auto part =
      static_cast<int64_t>(std::min<uint64_t>(request.size(), static_cast<uint64_t>(part_bytes_)));
  const absl::Status room = memory_of_parts_.Add(kPartsInMemory * part, "a read of a tensor");
  if (!room.ok()) {
    without_room_ = true;
    if (++streams_without_room > kMostWithoutRoom) return room;
  }
  COHORT_ASSIGN_OR_RETURN(CallGate::Pass pass, gate.Enter(session_->calls()));
  pass_.emplace(std::move(pass));
  at_ = memory_.data + request.offset();
  left_ = static_cast<int64_t>(request.size());
  return absl::OkStatus();
}

void ReadStream::Continue() {
  if (left_ > 0) {
    const int64_t bytes = std::min(left_, part_bytes_);
    const absl::Status filled =
        WithMemory("cohort.v1.WorkerService/ReadTensor", "a part", bytes, [&] {
          part_.set_bytes(at_, static_cast<size_t>(bytes));
          return absl::OkStatus();
        });
    if (!filled.ok()) return End(filled);
    at_ += bytes;
    left_ -= bytes;
    StartWrite(&part_);
    return;
  }
  End(absl::OkStatus());
}

void ReadStream::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
  }
  Finish(Answer(context_, status));
}

void ReadStream::OnWriteDone(bool ok) {
  Touch();
  if (ok) return Continue();
  End(absl::CancelledError("the reader is gone"));
}

void ReadStream::OnIdle(absl::Duration limit) {
  MutexLock lock(&mutex_);
  if (std::exchange(ended_, true)) return;
  Log(LogLevel::kWarning, "ReadTensor cancelled: its client takes no part",
      {{"client", session_->client().name},
       {"pid", session_->client().pid},
       {"stream-idle-limit", absl::FormatDuration(limit)}});
  context_->TryCancel();
}

void ReadStream::OnDone() {
  watch_.Remove(this);
  const std::shared_ptr<ReadStream> self = std::move(self_);  // unless the watch holds the last
}

}  // namespace cohort::worker
