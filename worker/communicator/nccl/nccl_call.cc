#include "worker/communicator/nccl/nccl_call.h"

#include <cstring>

#include "base/small_float.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/nccl_types.h"

namespace cohort::worker {
namespace {

template <typename T>
void Store(T value, char* to) {
  std::memcpy(to, &value, sizeof(value));
}

// As an element of `type`, which CheckReducible allows to be scaled.
void StoreScale(DataType type, double scale, char* to) {
  const auto single = static_cast<float>(scale);
  switch (type) {
    case DataType::kF64:
      return Store(scale, to);
    case DataType::kF32:
      return Store(single, to);
    case DataType::kF16:
      return Store(F16FromFloat(single), to);
    case DataType::kBF16:
      return Store(BF16FromFloat(single), to);
    case DataType::kF8E4M3:
      return Store(F8E4M3FromFloat(single), to);
    case DataType::kF8E5M2:
      return Store(F8E5M2FromFloat(single), to);
    default:
      return;
  }
}

}  // namespace

absl::StatusOr<NcclOperands> OperandsOf(const Operation& operation, int compute_capability) {
  NcclOperands operands;
  if (Reduces(operation.verb)) {
    COHORT_ASSIGN_OR_RETURN(
        const NcclReduction reduction,
        ReductionFor(operation.type, operation.reduction.op, compute_capability));
    operands.type = reduction.type;
    operands.op = reduction.op;
    operands.count = static_cast<size_t>(operation.count);
    return operands;
  }
  const NcclElements moved = ElementsToMove(operation.type);
  operands.type = moved.type;
  operands.count = static_cast<size_t>(operation.count * moved.factor);
  return operands;
}

const char* NcclFunction(Verb verb) {
  switch (verb) {
    case Verb::kAllReduce:
      return "ncclAllReduce";
    case Verb::kReduce:
      return "ncclReduce";
    case Verb::kBroadcast:
      return "ncclBroadcast";
    case Verb::kAllGather:
      return "ncclAllGather";
    case Verb::kReduceScatter:
      return "ncclReduceScatter";
    case Verb::kAllToAll:
      return "ncclAlltoAll";
    case Verb::kGather:
      return "ncclGather";
    case Verb::kScatter:
      return "ncclScatter";
    case Verb::kBarrier:
      break;
  }
  return "";
}

ncclResult_t MakeScaledSum(NcclApi& nccl, const Operation& operation, ncclDataType_t type,
                           ncclComm_t comm, ncclRedOp_t* op) {
  alignas(8) char scalar[8] = {};
  StoreScale(operation.type, operation.reduction.scale, scalar);
  return nccl.RedOpCreatePreMulSum(op, scalar, type, ncclScalarHostImmediate, comm);
}

ncclResult_t CallNccl(NcclApi& nccl, const Operation& operation, const NcclOperands& operands,
                      const void* input, void* output, ncclComm_t comm, cudaStream_t stream) {
  const size_t count = operands.count;
  const ncclDataType_t type = operands.type;
  switch (operation.verb) {
    case Verb::kAllReduce:
      return nccl.AllReduce(input, output, count, type, operands.op, comm, stream);
    case Verb::kReduce:
      return nccl.Reduce(input, output, count, type, operands.op, operation.root, comm, stream);
    case Verb::kBroadcast:
      return nccl.Broadcast(input, output, count, type, operation.root, comm, stream);
    case Verb::kAllGather:
      return nccl.AllGather(input, output, count, type, comm, stream);
    case Verb::kReduceScatter:
      return nccl.ReduceScatter(input, output, count, type, operands.op, comm, stream);
    case Verb::kAllToAll:
      return nccl.AlltoAll(input, output, count, type, comm, stream);
    case Verb::kGather:
      return nccl.Gather(input, output, count, type, operation.root, comm, stream);
    case Verb::kScatter:
      return nccl.Scatter(input, output, count, type, operation.root, comm, stream);
    case Verb::kBarrier:
      break;
  }
  return ncclInvalidArgument;
}

ncclResult_t CallNccl(NcclApi& nccl, absl::Span<const Transfer> transfers,
                      const std::vector<size_t>& which, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = nccl.GroupStart();
  for (const size_t i : which) {
    const Transfer& transfer = transfers[i];
    if (transfer.count == 0 || result != ncclSuccess) continue;
    const NcclElements moved = ElementsToMove(transfer.type);
    const auto count = static_cast<size_t>(transfer.count * moved.factor);
    result = transfer.sends
                 ? nccl.Send(transfer.data, count, moved.type, transfer.peer, comm, stream)
                 : nccl.Recv(transfer.data, count, moved.type, transfer.peer, comm, stream);
    if (result == ncclInProgress) result = ncclSuccess;
  }
  const ncclResult_t ended = nccl.GroupEnd();
  return result == ncclSuccess ? ended : result;
}

std::vector<size_t> FilledPlaces(absl::Span<const Transfer> transfers) {
  std::vector<size_t> places;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].count > 0) places.push_back(i);
  }
  return places;
}

}  // namespace cohort::worker
