// Sequences of ExecutingGroup: records calls, captures those on the GPU, and replays them.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/recording.h"
#include "worker/group/executing_group.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::Sizes;

}  // namespace

absl::StatusOr<std::unique_ptr<client::Sequence>> ExecutingGroup::Record(
    absl::FunctionRef<absl::Status(client::Group&)> body, const CallOptions& options) {
  COHORT_ASSIGN_OR_RETURN(client::RecordedCalls calls, client::RecordCalls(*this, body, options));
  if (placement() == Placement::kHost) return client::SequenceOfCalls(*this, std::move(calls));
  const int size = static_cast<int>(calls.size());
  absl::StatusOr<std::vector<RecordedStep>> steps = StepsOf(std::move(calls));
  absl::Status status = steps.ok() ? Capture(*steps, options) : steps.status();
  // Tells the other ranks whether this rank could record the sequence.
  COHORT_ASSIGN_OR_RETURN(const Sizes done, ExchangeSizes(status.ok() ? 1 : 0, options));
  COHORT_RETURN_IF_ERROR(status);
  const auto failed = std::find(done.begin(), done.end(), 0);
  if (failed != done.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", failed - done.begin(),
                     " could not record the sequence; its own error has the reason"));
  }
  return std::make_unique<RecordedSequence>(this, *std::move(steps), size);
}

absl::Status ExecutingGroup::Capture(std::vector<RecordedStep>& steps, const CallOptions& options) {
  DeviceSide* side = nullptr;
  {
    MutexLock lock(&call_mutex_);
    side = device_side_.get();
  }
  for (RecordedStep& step : steps) {
    if (!step.calls[0].on_gpu) continue;
    if (side == nullptr) return absl::AbortedError("the group has not been formed again");
    const auto common =
        std::count_if(step.calls.begin(), step.calls.end(),
                      [](const client::RecordedCall& call) { return !call.text.empty(); });
    // A step of messages alone is between two ranks; a replay is a call of all ranks.
    if (common == 0) continue;
    const auto call_all = [&](void* stream) {
      SetCaptured(stream);
      CallOptions on_stream = options;
      on_stream.stream = stream;
      int number = step.first;
      for (const client::RecordedCall& call : step.calls) {
        const absl::Status status = call.run(*this, on_stream);
        if (!status.ok()) {
          return absl::Status(status.code(),
                              absl::StrCat("call ", number, " recorded: ", status.message()));
        }
        ++number;
      }
      return absl::OkStatus();
    };
    absl::StatusOr<std::shared_ptr<DeviceReplay>> replay = side->Capture(
        static_cast<int>(common), static_cast<uint32_t>(client::DigestOf(step.calls)), call_all);
    SetCaptured(nullptr);
    COHORT_ASSIGN_OR_RETURN(step.replay, std::move(replay));
  }
  return absl::OkStatus();
}

void ExecutingGroup::SetCaptured(void* stream) {
  MutexLock lock(&call_mutex_);
  captured_stream_ = stream;
}

absl::Status ExecutingGroup::Replay(DeviceReplay& replay, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  const int64_t ticks = TickClock::Ticks();
  flight_recorder_.Begin(generation_, Collective::kReplay, DataType::kU8, 0, /*root=*/-1, ticks,
                         options.stream.has_value());
  const absl::Status status =
      replay.Run(options.stream, TimeoutOf(options), clock_.JustBefore(ticks) + TimeoutOf(options));
  flight_recorder_.End(status.code());
  return status;
}

}  // namespace cohort::worker
