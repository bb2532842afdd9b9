#include "worker/communicator/nccl/nccl_stream_communicator.h"

namespace cohort::worker {

absl::Status NcclStreamCommunicator::Enqueue(Verb verb, const void* input, void* output,
                                             int64_t count, DataType type, int root,
                                             const Reduction& reduction, Instant deadline) {
  return group_.Enqueue(MakeOperation(verb, count, type, tag(), root, reduction), input, output,
                        options_, deadline);
}

absl::Status NcclStreamCommunicator::AllReduce(const void* input, void* output, int64_t count,
                                               DataType type, const Reduction& reduction,
                                               Instant deadline) {
  return Enqueue(Verb::kAllReduce, input, output, count, type, 0, reduction, deadline);
}

absl::Status NcclStreamCommunicator::Reduce(const void* input, void* output, int64_t count,
                                            DataType type, const Reduction& reduction, int root,
                                            Instant deadline) {
  return Enqueue(Verb::kReduce, input, output, count, type, root, reduction, deadline);
}

absl::Status NcclStreamCommunicator::Broadcast(const void* input, void* output, int64_t count,
                                               DataType type, int root, Instant deadline) {
  return Enqueue(Verb::kBroadcast, input, output, count, type, root, {}, deadline);
}

absl::Status NcclStreamCommunicator::AllGather(const void* input, void* output, int64_t count,
                                               DataType type, Instant deadline) {
  return Enqueue(Verb::kAllGather, input, output, count, type, 0, {}, deadline);
}

absl::Status NcclStreamCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                                   DataType type, const Reduction& reduction,
                                                   Instant deadline) {
  return Enqueue(Verb::kReduceScatter, input, output, count, type, 0, reduction, deadline);
}

absl::Status NcclStreamCommunicator::AllToAll(const void* input, void* output, int64_t count,
                                              DataType type, Instant deadline) {
  return Enqueue(Verb::kAllToAll, input, output, count, type, 0, {}, deadline);
}

absl::Status NcclStreamCommunicator::Gather(const void* input, void* output, int64_t count,
                                            DataType type, int root, Instant deadline) {
  return Enqueue(Verb::kGather, input, output, count, type, root, {}, deadline);
}

absl::Status NcclStreamCommunicator::Scatter(const void* input, void* output, int64_t count,
                                             DataType type, int root, Instant deadline) {
  return Enqueue(Verb::kScatter, input, output, count, type, root, {}, deadline);
}

absl::Status NcclStreamCommunicator::Exchange(absl::Span<const Transfer> transfers,
                                              Instant deadline) {
  return group_.Enqueue(transfers, options_, deadline);
}

absl::Status NcclStreamCommunicator::Barrier(Instant deadline) {
  group_.set_tag(tag());
  return group_.Barrier(deadline);
}

}  // namespace cohort::worker
