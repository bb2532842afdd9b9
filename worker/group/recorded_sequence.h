// A recorded sequence of an executing group.
#ifndef COHORT_WORKER_GROUP_RECORDED_SEQUENCE_H_
#define COHORT_WORKER_GROUP_RECORDED_SEQUENCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "client/collective/record_calls.h"
#include "client/collective/sequence.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::worker {

class InProcessGroup;

class RecordedSequence final : public client::Sequence {
 public:
  // `group` outlives it. `calls` keep their tensors alive, and `replay` launches them as one.
  RecordedSequence(InProcessGroup* group, client::RecordedCalls calls,
                   std::shared_ptr<DeviceReplay> replay);

  int size() const override { return static_cast<int>(calls_.size()); }
  absl::Status Replay(const client::CallOptions& options) override;

 private:
  InProcessGroup& group_;
  const client::RecordedCalls calls_;
  const std::shared_ptr<DeviceReplay> replay_;
  const int64_t generation_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_RECORDED_SEQUENCE_H_
