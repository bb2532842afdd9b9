// A recorded sequence of an executing group with calls on its GPU.
#ifndef COHORT_WORKER_GROUP_RECORDED_SEQUENCE_H_
#define COHORT_WORKER_GROUP_RECORDED_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/recording.h"
#include "client/collective/sequence.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::worker {

class ExecutingGroup;

// Consecutive calls, all on the host or all on the GPU. Those on the GPU are captured, and launched
// as one.
struct RecordedStep {
  int first = 1;                // the number of the first call, from 1
  client::RecordedCalls calls;  // they keep their tensors
  std::shared_ptr<DeviceReplay> replay;
};

// Splits the calls into steps, at the same positions on all ranks. All ranks have the same calls,
// except messages. Messages on GPUs join the step of the calls around them. Errors:
// FAILED_PRECONDITION (messages of host memory between calls on GPUs, which are one step on other
// ranks).
absl::StatusOr<std::vector<RecordedStep>> StepsOf(client::RecordedCalls calls);

class RecordedSequence final : public client::Sequence {
 public:
  // `group` outlives it.
  RecordedSequence(ExecutingGroup* group, std::vector<RecordedStep> steps, int size);

  int size() const override { return size_; }
  absl::Status Replay(const client::CallOptions& options) override;

 private:
  ExecutingGroup& group_;
  const std::vector<RecordedStep> steps_;
  const int size_;
  const int64_t generation_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_RECORDED_SEQUENCE_H_
