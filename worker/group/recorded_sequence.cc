#include "worker/group/recorded_sequence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "worker/group/in_process_group.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::RecordedCall;

bool IsMessage(const RecordedCall& call) { return call.text.empty(); }

}  // namespace

absl::StatusOr<std::vector<RecordedStep>> StepsOf(client::RecordedCalls calls) {
  // Other ranks do not have these messages. They have one step where the messages would give this
  // rank two.
  bool behind_gpu = false;
  int parting = 0;  // the number of the first such message; 0: none
  for (size_t i = 0; i < calls.size(); ++i) {
    if (IsMessage(calls[i])) {
      if (behind_gpu && !calls[i].on_gpu && parting == 0) parting = static_cast<int>(i) + 1;
      continue;
    }
    if (calls[i].on_gpu && parting != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("call ", parting,
                       " recorded, of messages in memory of the host, lies between calls on GPUs"));
    }
    behind_gpu = calls[i].on_gpu;
    parting = 0;
  }
  std::vector<RecordedStep> steps;
  int number = 0;
  for (RecordedCall& call : calls) {
    ++number;
    if (steps.empty() || steps.back().calls.back().on_gpu != call.on_gpu) {
      steps.emplace_back();
      steps.back().first = number;
    }
    steps.back().calls.push_back(std::move(call));
  }
  return steps;
}

RecordedSequence::RecordedSequence(InProcessGroup* group, std::vector<RecordedStep> steps, int size)
    : group_(*group), steps_(std::move(steps)), size_(size), generation_(group->generation()) {}

absl::Status RecordedSequence::Replay(const CallOptions& options) {
  if (group_.generation() != generation_) return client::EndedSequence(group_, generation_);
  const bool all_on_gpu = std::all_of(steps_.begin(), steps_.end(), [](const RecordedStep& step) {
    return step.replay != nullptr;
  });
  if (options.stream.has_value() && !all_on_gpu) {
    return absl::InvalidArgumentError(
        "a sequence on a stream: some of its calls are barriers or of memory of the host");
  }
  CallOptions left = options;
  const Instant deadline = options.timeout.has_value() ? Clock::Steady().Now() + *options.timeout
                                                       : absl::InfiniteFuture();
  for (const RecordedStep& step : steps_) {
    int number = step.first;
    absl::Status status;
    if (step.replay != nullptr) {
      status = group_.Replay(*step.replay, left);
    } else {
      for (const RecordedCall& call : step.calls) {
        status = call.run(group_, left);
        if (!status.ok()) break;
        ++number;
      }
    }
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("call ", number, " of ", size_,
                                                      " recorded: ", status.message()));
    }
    if (options.timeout.has_value()) left.timeout = deadline - Clock::Steady().Now();
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
