#include "worker/communicator/single/single_communicator.h"

#include <cstring>

#include "base/status_macros.h"
#include "worker/communicator/host/reduce_kernel.h"

namespace cohort::worker {

absl::Status SingleCommunicator::Run(Verb verb, const void* input, void* output, int64_t count,
                                     DataType type, int root, const Reduction* reduction) {
  {
    MutexLock lock(&mutex_);
    if (!aborted_.ok()) return aborted_;
  }
  Operation operation;
  operation.verb = verb;
  operation.count = count;
  operation.type = type;
  operation.root = root;
  if (reduction != nullptr) operation.reduction = *reduction;
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, 0, 1, input, output));
  if (count == 0) return absl::OkStatus();
  if (reduction != nullptr) {
    // Even of one rank: a scale, and a bool that is neither 0 nor 1.
    worker::Reduce(type, *reduction, absl::MakeConstSpan(&input, 1),
                   absl::MakeConstSpan(&output, 1), count);
  } else if (input != output) {
    std::memcpy(output, input, static_cast<size_t>(count * SizeOf(type)));
  }
  return absl::OkStatus();
}

absl::Status SingleCommunicator::AllReduce(const void* input, void* output, int64_t count,
                                           DataType type, const Reduction& reduction, Instant) {
  return Run(Verb::kAllReduce, input, output, count, type, 0, &reduction);
}
absl::Status SingleCommunicator::Reduce(const void* input, void* output, int64_t count,
                                        DataType type, const Reduction& reduction, int root,
                                        Instant) {
  return Run(Verb::kReduce, input, output, count, type, root, &reduction);
}
absl::Status SingleCommunicator::Broadcast(const void* input, void* output, int64_t count,
                                           DataType type, int root, Instant) {
  return Run(Verb::kBroadcast, input, output, count, type, root, nullptr);
}
absl::Status SingleCommunicator::AllGather(const void* input, void* output, int64_t count,
                                           DataType type, Instant) {
  return Run(Verb::kAllGather, input, output, count, type, 0, nullptr);
}
absl::Status SingleCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                               DataType type, const Reduction& reduction, Instant) {
  return Run(Verb::kReduceScatter, input, output, count, type, 0, &reduction);
}
absl::Status SingleCommunicator::AllToAll(const void* input, void* output, int64_t count,
                                          DataType type, Instant) {
  return Run(Verb::kAllToAll, input, output, count, type, 0, nullptr);
}
absl::Status SingleCommunicator::Gather(const void* input, void* output, int64_t count,
                                        DataType type, int root, Instant) {
  return Run(Verb::kGather, input, output, count, type, root, nullptr);
}
absl::Status SingleCommunicator::Scatter(const void* input, void* output, int64_t count,
                                         DataType type, int root, Instant) {
  return Run(Verb::kScatter, input, output, count, type, root, nullptr);
}
absl::Status SingleCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, 0, 1));
  return Run(Verb::kBarrier, nullptr, nullptr, 0, DataType::kU8, 0, nullptr);
}
absl::StatusOr<bool> SingleCommunicator::HasMessage(int) {
  MutexLock lock(&mutex_);
  if (!aborted_.ok()) return aborted_;
  return false;
}
absl::StatusOr<int> SingleCommunicator::AwaitMessage(absl::Span<const int>, Instant) {
  return absl::InvalidArgumentError("a rank alone awaits no message");
}
absl::Status SingleCommunicator::ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) {
  return Exchange(notes, deadline);
}
absl::StatusOr<bool> SingleCommunicator::HasNote(int peer) { return HasMessage(peer); }
absl::Status SingleCommunicator::Barrier(Instant) {
  return Run(Verb::kBarrier, nullptr, nullptr, 0, DataType::kU8, 0, nullptr);
}

void SingleCommunicator::Abort(absl::string_view cause) {
  MutexLock lock(&mutex_);
  if (!aborted_.ok()) return;
  aborted_ = absl::AbortedError(cause);
}

}  // namespace cohort::worker
