#include "worker/communicator/single/single_communicator.h"

#include <cstring>

#include "base/status_macros.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"

namespace cohort::worker {

absl::Status SingleCommunicator::Run(const FlatCall& call, const void* input, void* output,
                                     Instant) {
  COHORT_RETURN_IF_ERROR(CheckNotAborted());
  COHORT_RETURN_IF_ERROR(CheckArguments(call, 0, 1, input, output));
  if (call.count == 0) return absl::OkStatus();
  if (Reduces(call.collective)) {
    // One rank reduces too: pre_mul_sum scales, and a bool becomes 0 or 1.
    worker::Reduce(call.type, call.reduction, absl::MakeConstSpan(&input, 1),
                   absl::MakeConstSpan(&output, 1), call.count);
  } else if (input != output) {
    std::memcpy(output, input, static_cast<size_t>(call.count * SizeOf(call.type)));
  }
  return absl::OkStatus();
}

absl::Status SingleCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant,
                                          MessageChannel channel) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, 0, 1, channel));
  return CheckNotAborted();
}

absl::StatusOr<MessageInfo> SingleCommunicator::AwaitMessage(absl::Span<const int>, Instant,
                                                             MessageChannel) {
  return absl::InvalidArgumentError("a rank alone awaits no message");
}

void SingleCommunicator::Abort(absl::string_view cause) {
  MutexLock lock(&mutex_);
  if (aborted_.ok()) aborted_ = absl::AbortedError(cause);
}

absl::Status SingleCommunicator::CheckNotAborted() {
  MutexLock lock(&mutex_);
  return aborted_;
}

}  // namespace cohort::worker
