// Sequences of InProcessGroup: records calls, captures them on the GPU, and replays them.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/record_calls.h"
#include "worker/group/in_process_group.h"
#include "worker/group/recorded_sequence.h"

namespace cohort::worker {

using client::CallOptions;

absl::StatusOr<std::unique_ptr<client::Sequence>> InProcessGroup::Record(
    absl::FunctionRef<absl::Status(client::Group&)> body, const CallOptions& options) {
  if (placement() == Placement::kHost) return client::Group::Record(body, options);
  COHORT_ASSIGN_OR_RETURN(client::RecordedCalls calls, client::RecordCalls(*this, body, options));
  absl::StatusOr<std::shared_ptr<DeviceReplay>> replay = Capture(calls, options);
  // Tells the other ranks whether this rank could capture its calls.
  COHORT_ASSIGN_OR_RETURN(const client::Sizes done, ExchangeSizes(replay.ok() ? 1 : 0, options));
  COHORT_RETURN_IF_ERROR(replay.status());
  const auto failed = std::find(done.begin(), done.end(), 0);
  if (failed != done.end()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", failed - done.begin(),
                                                   " could not record the sequence; it says why"));
  }
  return std::make_unique<RecordedSequence>(this, std::move(calls), *std::move(replay));
}

absl::StatusOr<std::shared_ptr<DeviceReplay>> InProcessGroup::Capture(
    const client::RecordedCalls& calls, const CallOptions& options) {
  DeviceSide* side = nullptr;
  {
    const TimedMutexLock lock(&call_mutex_);
    side = device_side_.get();
  }
  if (side == nullptr) return absl::AbortedError("the group has not been formed again");
  const auto collectives =
      std::count_if(calls.begin(), calls.end(),
                    [](const client::RecordedCall& call) { return !call.is_message(); });
  // Ranks compare replays by their collectives, so sequences of messages alone would look alike.
  if (collectives == 0) {
    return absl::FailedPreconditionError(absl::StrCat("record: the sequence of group ", name(),
                                                      " has no collective, expected at least one"));
  }
  const auto call_all = [&](void* stream) {
    SetCaptured(stream);
    CallOptions on_stream = options;
    on_stream.stream = stream;
    int number = 0;
    for (const client::RecordedCall& call : calls) {
      ++number;
      const absl::Status status = call.Run(*this, on_stream);
      if (!status.ok()) {
        return absl::Status(status.code(),
                            absl::StrCat("call ", number, " recorded: ", status.message()));
      }
    }
    return absl::OkStatus();
  };
  absl::StatusOr<std::shared_ptr<DeviceReplay>> replay = side->Capture(
      static_cast<int>(collectives), static_cast<uint32_t>(client::DigestOf(calls)), call_all);
  SetCaptured(nullptr);
  return replay;
}

void InProcessGroup::SetCaptured(void* stream) {
  const TimedMutexLock lock(&call_mutex_);
  captured_stream_ = stream;
}

absl::Status InProcessGroup::Replay(DeviceReplay& replay, const CallOptions& options) {
  const TimedMutexLock lock(&call_mutex_);
  const int64_t ticks = TickClock::Ticks();
  flight_recorder_.Begin(generation_, Collective::kReplay, DataType::kU8, 0, /*root=*/-1, ticks,
                         options.stream.has_value());
  const absl::Status status =
      replay.Run(options.stream, TimeoutOf(options), clock_.JustBefore(ticks) + TimeoutOf(options));
  flight_recorder_.End(status.code());
  return status;
}

}  // namespace cohort::worker
