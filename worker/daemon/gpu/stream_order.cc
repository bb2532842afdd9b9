#include "worker/daemon/gpu/stream_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/text/logging.h"

namespace cohort::worker {
namespace {

// The session's heap aligns an allocation of this size to a page.
constexpr int64_t kFlagsBytes = int64_t{64} << 10;
constexpr size_t kPage = 4096;
// Each call puts some operations on the stream; CUDA takes about a thousand before it blocks.
constexpr size_t kMostInFlight = 128;
// Flags compare numbers by their difference; numbers of calls are close to each other.
constexpr uint64_t kFurthest = uint64_t{1} << 32;
constexpr absl::Duration kPause = absl::Microseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<StreamOrder::Shared>> StreamOrder::NewShared(
    const TensorMemory& flags) const {
  if (!flags.device.is_host() || flags.bytes != kFlagsBytes ||
      reinterpret_cast<uintptr_t>(flags.data) % kPage != 0) {
    return absl::InvalidArgumentError(absl::StrCat("flags of streams lie in a tensor of ",
                                                   kFlagsBytes, " bytes of the session's memory; ",
                                                   "one of ", flags.bytes, " came"));
  }
  auto shared = std::make_unique<Shared>();
  shared->memory = flags;
  shared->own_memory.reset(static_cast<uint64_t*>(std::aligned_alloc(kPage, kPage)));
  if (shared->own_memory == nullptr) return absl::ResourceExhaustedError("no memory for flags");
  std::fill_n(shared->own_memory.get(), kPage / sizeof(uint64_t), uint64_t{0});
  COHORT_ASSIGN_OR_RETURN(shared->stream, gpu_->NewStream());
  COHORT_ASSIGN_OR_RETURN(shared->own_flags, gpu_->Pin(shared->own_memory.get(), kPage));
  COHORT_ASSIGN_OR_RETURN(shared->flags, gpu_->Pin(flags.data, flags.bytes));
  return shared;
}

void StreamOrder::NameRank(const std::string& group, int rank) {
  MutexLock lock(&mutex_);
  group_ = group;
  rank_ = rank;
}

absl::Status StreamOrder::Named(const absl::Status& status) const {
  MutexLock lock(&mutex_);
  return absl::Status(status.code(),
                      absl::StrCat("rank ", rank_, " of group ", group_, ": ", status.message()));
}

absl::StatusOr<StreamOrder::Shared*> StreamOrder::Prepare(const TensorMemory& flags) {
  MutexLock lock(&mutex_);
  if (released_) return absl::AbortedError("its client is gone");
  if (shared_ == nullptr) {
    COHORT_ASSIGN_OR_RETURN(shared_, NewShared(flags));
  }
  if (flags.data != shared_->memory.data) {
    return absl::InvalidArgumentError("a group has one tensor of flags for its streams");
  }
  return shared_.get();
}

absl::Status StreamOrder::Run(const TensorMemory& flags, const v1::StreamOrder& order,
                              Instant deadline,
                              absl::FunctionRef<absl::Status(void* stream, Owners* owners)> body) {
  MutexLock lock(&call_mutex_);
  // The result stays valid: only the destructor replaces it.
  const absl::StatusOr<Shared*> prepared = Prepare(flags);
  if (!prepared.ok()) return Named(prepared.status());
  Shared* const shared = *prepared;
  const uint64_t number = order.number();
  if (number <= last_ || number - last_ > kFurthest) {
    return Named(
        absl::InvalidArgumentError(absl::StrCat("call ", number, " of a stream came after call ",
                                                last_, ": expected one of the next ", kFurthest)));
  }
  if (const absl::Status room = AwaitRoom(deadline); !room.ok()) return Named(room);
  last_ = number;
  COHORT_RETURN_IF_ERROR(shared->flags->Await(shared->stream.get(), kClientIsThere, number));
  InFlight call;
  call.number = number;
  // The flags are set also after an error, because part of the call may be enqueued.
  const absl::Status status = body(shared->stream.get(), &call.owners);
  {
    MutexLock in_flight_lock(&mutex_);
    shared->in_flight.push_back(std::move(call));
  }
  COHORT_RETURN_IF_ERROR(shared->own_flags->Set(shared->stream.get(), kCallIsDone, number));
  enqueued_ = number;
  COHORT_RETURN_IF_ERROR(shared->flags->Set(shared->stream.get(), kCallIsDone, number));
  return status;
}

absl::Status StreamOrder::AwaitRoom(Instant deadline) {
  while (ForgetDone() >= kMostInFlight) {
    if (Clock::Steady().Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the client's streams have ", kMostInFlight,
                                                      " calls of the group to do first"));
    }
    absl::SleepFor(kPause);
  }
  return absl::OkStatus();
}

size_t StreamOrder::ForgetDone() {
  std::vector<InFlight> done;  // after unlock
  MutexLock lock(&mutex_);
  if (shared_ == nullptr) return 0;
  std::deque<InFlight>& calls = shared_->in_flight;
  while (!calls.empty() && calls.front().number <= shared_->done()) {
    done.push_back(std::move(calls.front()));
    calls.pop_front();
  }
  return calls.size();
}

void StreamOrder::Sweep() { ForgetDone(); }

void StreamOrder::Release() {
  MutexLock lock(&mutex_);
  released_ = true;
  if (shared_ != nullptr) shared_->flags->Release(kClientIsThere);
}

StreamOrder::~StreamOrder() {
  Release();
  MutexLock call_lock(&call_mutex_);
  MutexLock lock(&mutex_);
  if (shared_ == nullptr) return;
  // A client that still runs may write the flag again, so release it repeatedly. Unpinning would
  // wait for the stream without limit.
  const Instant end = Clock::Steady().Now() + timeout_;
  while (shared_->done() < enqueued_ && Clock::Steady().Now() < end) {
    shared_->flags->Release(kClientIsThere);
    absl::SleepFor(kPause);
  }
  if (shared_->done() >= enqueued_) return;
  Log(LogLevel::kError, "the work on a stream does not finish: its memory is kept",
      {{"group", group_},
       {"rank", rank_},
       {"device", gpu_->device().ToString()},
       {"call", static_cast<int64_t>(enqueued_)}});
  static_cast<void>(shared_.release());
}

}  // namespace cohort::worker
