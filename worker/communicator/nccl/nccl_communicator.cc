#include "worker/communicator/nccl/nccl_communicator.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/small_float.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/nccl/nccl_error.h"
#include "worker/communicator/nccl/nccl_lane.h"
#include "worker/communicator/nccl/nccl_types.h"
#include "worker/cuda/device.h"
#include "worker/cuda/wait.h"

namespace cohort::worker {
namespace {

// At a device that works, before NCCL and the other ranks are looked at each time, too.
constexpr int kLooksAlone = 64;

Operation MakeOperation(Verb verb, int64_t count, DataType type, uint32_t tag, int root = 0,
                        const Reduction& reduction = {}) {
  Operation operation;
  operation.verb = verb;
  operation.count = count;
  operation.type = type;
  operation.reduction = reduction;
  operation.root = root;
  operation.tag = tag;
  return operation;
}

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

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Form(NcclFormation formation,
                                                                         Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(formation.device));
  COHORT_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(formation.device));
  NcclCliqueOptions options;
  options.device = formation.device;
  options.rank = formation.host->rank();
  options.size = formation.host->size();
  options.ids = formation.ids;
  options.name = formation.name;
  auto result = absl::WrapUnique(
      new NcclCommunicator(std::move(formation), std::move(stream), std::move(done)));
  absl::StatusOr<std::unique_ptr<NcclClique>> clique =
      NcclClique::Form(result->nccl_, options, deadline, [&] { return result->Standing(); });
  if (!clique.ok()) {
    // Others wait for this rank in vain.
    result->host_->Abort(absl::StrCat("rank ", result->rank(),
                                      " could not form NCCL's group: ", clique.status().message()));
    return clique.status();
  }
  result->clique_ = *std::move(clique);
  return result;
}

NcclCommunicator::NcclCommunicator(NcclFormation formation, cuda::Stream stream, cuda::Event done)
    : nccl_(std::move(formation.nccl)),
      compute_capability_(formation.compute_capability),
      host_(formation.host),
      stream_(std::move(stream)),
      done_(std::move(done)),
      agreement_(host_) {}

NcclCommunicator::~NcclCommunicator() = default;

absl::Status NcclCommunicator::Standing() {
  {
    MutexLock lock(&mutex_);
    if (!broken_.ok()) return broken_;
  }
  if (size() == 1) return absl::OkStatus();
  // One at a time: whoever ended the group tells all, and where all share memory any tells it.
  looks_at_ = (looks_at_ + 1) % size();
  if (looks_at_ == rank()) return absl::OkStatus();
  return host_->HasMessage(looks_at_).status();
}

void NcclCommunicator::Abort(absl::string_view cause) {
  {
    MutexLock lock(&mutex_);
    if (broken_.ok()) broken_ = absl::AbortedError(cause);
  }
  // Whoever waits for the device notices, and ends it.
  host_->Abort(cause);
}

absl::Status NcclCommunicator::Break(const absl::Status& status) {
  absl::Status cause;
  {
    MutexLock lock(&mutex_);
    if (broken_.ok()) {
      broken_ =
          absl::IsAborted(status)
              ? status
              : absl::AbortedError(absl::StrCat("rank ", rank(), " gave up: ", status.message()));
    }
    cause = broken_;
  }
  host_->Abort(cause.message());
  if (clique_ != nullptr) clique_->Revoke();
  return status;
}

absl::StatusOr<NcclCommunicator::Elements> NcclCommunicator::ElementsOf(
    const Operation& operation) {
  Elements elements;
  if (Reduces(operation.verb)) {
    COHORT_ASSIGN_OR_RETURN(
        const NcclReduction reduction,
        ReductionFor(operation.type, operation.reduction.op, compute_capability_));
    elements.type = reduction.type;
    elements.op = reduction.op;
    elements.count = static_cast<size_t>(operation.count);
    return elements;
  }
  const NcclElements moved = ElementsToMove(operation.type);
  elements.type = moved.type;
  elements.count = static_cast<size_t>(operation.count * moved.factor);
  return elements;
}

absl::Status NcclCommunicator::Run(const Operation& operation, const void* input, void* output,
                                   const char* call, Issue issue, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_ASSIGN_OR_RETURN(Elements elements, ElementsOf(operation));
  COHORT_RETURN_IF_ERROR(Standing());
  absl::Status status = agreement_.OnOperation(operation, deadline);
  if (!status.ok()) return IsMismatch(status) ? status : Break(status);
  if (operation.count == 0) return absl::OkStatus();
  const bool scales = elements.op == ncclNumOps && Reduces(operation.verb);
  status = RunIssued(call, deadline, [&] {
    if (scales) {
      alignas(8) char scalar[8] = {};
      StoreScale(operation.type, operation.reduction.scale, scalar);
      const ncclResult_t made = nccl_->RedOpCreatePreMulSum(
          &elements.op, scalar, elements.type, ncclScalarHostImmediate, clique_->comm());
      if (made != ncclSuccess) return made;
    }
    return issue(elements, clique_->comm(), stream_.get());
  });
  if (status.ok()) {
    status = clique_->AwaitCalls(call, deadline, [this] { return Standing(); });
  }
  if (status.ok() && scales) {
    // Not sooner: a communicator that is in progress takes no other call.
    status = RunIssued("ncclRedOpDestroy", deadline,
                       [&] { return nccl_->RedOpDestroy(elements.op, clique_->comm()); });
  }
  if (status.ok()) status = AwaitDevice(Describe(operation), deadline);
  return status.ok() ? status : Break(status);
}

absl::Status NcclCommunicator::RunIssued(const char* call, Instant deadline,
                                         absl::FunctionRef<ncclResult_t()> issue) {
  COHORT_ASSIGN_OR_RETURN(const cuda::CurrentDevice current,
                          cuda::CurrentDevice::Set(clique_->device()));
  COHORT_ASSIGN_OR_RETURN(const NcclLane::Turn turn,
                          NcclLane::Of(clique_->device()).Enter(deadline));
  return NcclError(*nccl_, issue(), call);
}

absl::Status NcclCommunicator::AwaitDevice(const std::string& what, Instant deadline) {
  COHORT_RETURN_IF_ERROR(done_.Record(stream_.get()));
  int looks = 0;
  const auto is_done = [&]() -> absl::StatusOr<bool> {
    COHORT_ASSIGN_OR_RETURN(const bool done, done_.Query());
    if (done || ++looks < kLooksAlone) return done;
    COHORT_RETURN_IF_ERROR(clique_->Health(deadline));
    COHORT_RETURN_IF_ERROR(Standing());
    return false;
  };
  COHORT_ASSIGN_OR_RETURN(const bool done, cuda::PollUntil(is_done, deadline));
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(what, ": all ranks have come, and the devices do not finish"));
}

absl::Status NcclCommunicator::AllReduce(const void* input, void* output, int64_t count,
                                         DataType type, const Reduction& reduction,
                                         Instant deadline) {
  return Run(
      MakeOperation(Verb::kAllReduce, count, type, tag(), 0, reduction), input, output,
      "ncclAllReduce",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->AllReduce(input, output, e.count, e.type, e.op, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::Reduce(const void* input, void* output, int64_t count, DataType type,
                                      const Reduction& reduction, int root, Instant deadline) {
  return Run(
      MakeOperation(Verb::kReduce, count, type, tag(), root, reduction), input, output,
      "ncclReduce",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->Reduce(input, output, e.count, e.type, e.op, root, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::Broadcast(const void* input, void* output, int64_t count,
                                         DataType type, int root, Instant deadline) {
  return Run(
      MakeOperation(Verb::kBroadcast, count, type, tag(), root), input, output, "ncclBroadcast",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->Broadcast(input, output, e.count, e.type, root, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::AllGather(const void* input, void* output, int64_t count,
                                         DataType type, Instant deadline) {
  return Run(
      MakeOperation(Verb::kAllGather, count, type, tag()), input, output, "ncclAllGather",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->AllGather(input, output, e.count, e.type, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                             DataType type, const Reduction& reduction,
                                             Instant deadline) {
  return Run(
      MakeOperation(Verb::kReduceScatter, count, type, tag(), 0, reduction), input, output,
      "ncclReduceScatter",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->ReduceScatter(input, output, e.count, e.type, e.op, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::AllToAll(const void* input, void* output, int64_t count,
                                        DataType type, Instant deadline) {
  return Run(
      MakeOperation(Verb::kAllToAll, count, type, tag()), input, output, "ncclAlltoAll",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->AlltoAll(input, output, e.count, e.type, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::Gather(const void* input, void* output, int64_t count, DataType type,
                                      int root, Instant deadline) {
  return Run(
      MakeOperation(Verb::kGather, count, type, tag(), root), input, output, "ncclGather",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->Gather(input, output, e.count, e.type, root, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::Scatter(const void* input, void* output, int64_t count,
                                       DataType type, int root, Instant deadline) {
  return Run(
      MakeOperation(Verb::kScatter, count, type, tag(), root), input, output, "ncclScatter",
      [&](const Elements& e, ncclComm_t comm, cudaStream_t stream) {
        return nccl_->Scatter(input, output, e.count, e.type, root, comm, stream);
      },
      deadline);
}

absl::Status NcclCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank(), size()));
  COHORT_RETURN_IF_ERROR(Standing());
  bool posted = false;
  const auto post = [&](const std::vector<size_t>& ready) -> absl::Status {
    COHORT_RETURN_IF_ERROR(RunIssued("ncclGroupEnd", deadline, [&] {
      ncclResult_t result = nccl_->GroupStart();
      for (const size_t i : ready) {
        const Transfer& transfer = transfers[i];
        if (transfer.count == 0 || result != ncclSuccess) continue;
        const NcclElements moved = ElementsToMove(transfer.type);
        const auto count = static_cast<size_t>(transfer.count * moved.factor);
        result = transfer.sends ? nccl_->Send(transfer.data, count, moved.type, transfer.peer,
                                              clique_->comm(), stream_.get())
                                : nccl_->Recv(transfer.data, count, moved.type, transfer.peer,
                                              clique_->comm(), stream_.get());
        if (result == ncclInProgress) result = ncclSuccess;
      }
      const ncclResult_t ended = nccl_->GroupEnd();
      return result == ncclSuccess ? ended : result;
    }));
    posted = true;
    return clique_->AwaitCalls("ncclGroupEnd", deadline, [this] { return Standing(); });
  };
  const absl::Status agreed = agreement_.OnTransfers(transfers, tag(), deadline, post);
  if (!agreed.ok() && !absl::IsInvalidArgument(agreed)) return Break(agreed);
  if (!posted) return agreed;
  const absl::Status done = AwaitDevice(
      transfers.size() == 1 ? Describe(transfers[0]) : absl::StrCat(transfers.size(), " messages"),
      deadline);
  return done.ok() ? agreed : Break(done);
}

absl::Status NcclCommunicator::Barrier(Instant deadline) {
  COHORT_RETURN_IF_ERROR(Standing());
  const absl::Status status =
      agreement_.OnOperation(MakeOperation(Verb::kBarrier, 0, DataType::kU8, tag()), deadline);
  return status.ok() || IsMismatch(status) ? status : Break(status);
}

}  // namespace cohort::worker
