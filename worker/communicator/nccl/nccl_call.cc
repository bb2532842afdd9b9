#include "worker/communicator/nccl/nccl_call.h"

#include <cstring>

#include "base/status_macros.h"
#include "base/tensor/small_float.h"
#include "worker/communicator/nccl/api/nccl_types.h"

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

absl::StatusOr<NcclOperands> OperandsOf(const FlatCall& call, int compute_capability, int ranks) {
  NcclOperands operands;
  if (Reduces(call.collective)) {
    COHORT_ASSIGN_OR_RETURN(const NcclReduction reduction,
                            ReductionFor(call.type, call.reduction.op, compute_capability, ranks));
    operands.type = reduction.type;
    operands.op = reduction.op;
    operands.count = static_cast<size_t>(call.count);
    return operands;
  }
  const NcclElements moved = ElementsToMove(call.type);
  operands.type = moved.type;
  operands.count = static_cast<size_t>(call.count * moved.factor);
  return operands;
}

const char* NcclFunction(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "ncclAllReduce";
    case Collective::kReduce:
      return "ncclReduce";
    case Collective::kBroadcast:
      return "ncclBroadcast";
    case Collective::kAllGather:
      return "ncclAllGather";
    case Collective::kReduceScatter:
      return "ncclReduceScatter";
    case Collective::kAllToAll:
      return "ncclAlltoAll";
    case Collective::kGather:
      return "ncclGather";
    case Collective::kScatter:
      return "ncclScatter";
    default:
      return "";
  }
}

ncclResult_t MakeScaledSum(NcclApi& nccl, const FlatCall& call, ncclDataType_t type,
                           ncclComm_t comm, ncclRedOp_t* op) {
  alignas(8) char scalar[8] = {};
  StoreScale(call.type, call.reduction.scale, scalar);
  return nccl.RedOpCreatePreMulSum(op, scalar, type, ncclScalarHostImmediate, comm);
}

ncclResult_t CallNccl(NcclApi& nccl, const FlatCall& call, const NcclOperands& operands,
                      const void* input, void* output, ncclComm_t comm, cudaStream_t stream) {
  const size_t count = operands.count;
  const ncclDataType_t type = operands.type;
  switch (call.collective) {
    case Collective::kAllReduce:
      if (!call.also.empty()) break;
      return nccl.AllReduce(input, output, count, type, operands.op, comm, stream);
    case Collective::kReduce:
      return nccl.Reduce(input, output, count, type, operands.op, call.root, comm, stream);
    case Collective::kBroadcast:
      return nccl.Broadcast(input, output, count, type, call.root, comm, stream);
    case Collective::kAllGather:
      return nccl.AllGather(input, output, count, type, comm, stream);
    case Collective::kReduceScatter:
      return nccl.ReduceScatter(input, output, count, type, operands.op, comm, stream);
    case Collective::kAllToAll:
      return nccl.AlltoAll(input, output, count, type, comm, stream);
    case Collective::kGather:
      return nccl.Gather(input, output, count, type, call.root, comm, stream);
    case Collective::kScatter:
      return nccl.Scatter(input, output, count, type, call.root, comm, stream);
    default:
      return ncclInvalidArgument;
  }
  // An all_reduce of several tensors.
  ncclResult_t result = nccl.GroupStart();
  const auto add = [&](const FlatTensor& tensor) {
    if (result != ncclSuccess) return;
    result = nccl.AllReduce(tensor.input, tensor.output, static_cast<size_t>(tensor.count), type,
                            operands.op, comm, stream);
    if (result == ncclInProgress) result = ncclSuccess;
  };
  add({input, output, call.count});
  for (const FlatTensor& tensor : call.also) add(tensor);
  const ncclResult_t ended = nccl.GroupEnd();
  return result == ncclSuccess ? ended : result;
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

std::vector<size_t> FilledIndices(absl::Span<const Transfer> transfers) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].count > 0) indices.push_back(i);
  }
  return indices;
}

}  // namespace cohort::worker
