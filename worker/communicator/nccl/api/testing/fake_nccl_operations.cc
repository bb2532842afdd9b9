// The fake NCCL's memory, reductions, operations and groups of operations.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_comm.h"

namespace cohort::worker {
namespace {

using Kind = FakeOperation::Kind;

FakeOperation Make(Kind kind, const void* input, void* output, size_t count, ncclDataType_t type,
                   int peer = 0, ncclRedOp_t op = ncclSum) {
  FakeOperation operation;
  operation.kind = kind;
  operation.input = input;
  operation.output = output;
  operation.count = count;
  operation.type = type;
  operation.peer = peer;
  operation.op = op;
  return operation;
}

}  // namespace

ncclResult_t FakeNcclApi::MemAlloc(void** memory, size_t bytes) {
  return Call("ncclMemAlloc", nullptr, -1, [&] {
    if (memory == nullptr || bytes == 0) return ncclInvalidArgument;
    const cudaError_t error = cudaMalloc(memory, bytes);
    MutexLock lock(&mutex_);
    if (error != cudaSuccess) return Fail(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'");
    memory_.insert(*memory);
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::MemFree(void* memory) {
  return Call("ncclMemFree", nullptr, -1, [&] {
    {
      MutexLock lock(&mutex_);
      if (memory_.erase(memory) == 0) {
        Misused("memory was freed that is not there");
        return Fail(ncclInvalidArgument, "ncclMemFree: not allocated by ncclMemAlloc");
      }
      for (const auto& comm : comms_) {
        for (const auto* const all : {&comm->buffers, &comm->windows}) {
          for (const auto& [handle, registered] : *all) {
            if (registered == memory) Misused("memory was freed that is registered");
          }
        }
      }
    }
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  });
}

ncclResult_t FakeNcclApi::Register(ncclComm_t comm, void* memory, size_t bytes, bool window,
                                   void** handle) {
  MutexLock lock(&mutex_);
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
  const bool aligned =
      !window || reinterpret_cast<uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
  if (memory == nullptr || bytes == 0 || handle == nullptr || !aligned) {
    return Fail(ncclInvalidArgument, "memory cannot be registered");
  }
  *handle = reinterpret_cast<void*>(static_cast<uintptr_t>(next_handle_++));
  (window ? comm->windows : comm->buffers)[*handle] = memory;
  return ncclSuccess;
}

ncclResult_t FakeNcclApi::Deregister(ncclComm_t comm, bool window, void* handle) {
  MutexLock lock(&mutex_);
  if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
  if ((window ? comm->windows : comm->buffers).erase(handle) == 1) return ncclSuccess;
  Misused(absl::StrCat("rank ", comm->rank, " deregisters memory that is not registered"));
  return Fail(ncclInvalidArgument, "not registered");
}

ncclResult_t FakeNcclApi::CommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  return Call("ncclCommRegister", comm, -1,
              [&] { return Register(comm, memory, bytes, false, handle); });
}
ncclResult_t FakeNcclApi::CommDeregister(ncclComm_t comm, void* handle) {
  return Call("ncclCommDeregister", comm, -1, [&] { return Deregister(comm, false, handle); });
}
ncclResult_t FakeNcclApi::CommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                             ncclWindow_t* window, int) {
  return Call("ncclCommWindowRegister", comm, -1, [&] {
    return Register(comm, memory, bytes, true, reinterpret_cast<void**>(window));
  });
}
ncclResult_t FakeNcclApi::CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return Call("ncclCommWindowDeregister", comm, -1,
              [&] { return Deregister(comm, true, static_cast<void*>(window)); });
}

ncclResult_t FakeNcclApi::RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                               ncclScalarResidence_t residence, ncclComm_t comm) {
  return Call("ncclRedOpCreatePreMulSum", comm, -1, [&] {
    MutexLock lock(&mutex_);
    if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
    if (op == nullptr || scalar == nullptr || NcclBytes(type) == 0) {
      return Fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: invalid argument");
    }
    ncclComm::PreMulSum made;
    made.type = type;
    if (residence == ncclScalarHostImmediate) {
      std::memcpy(made.scalar.data(), scalar, NcclBytes(type));
    } else {
      made.memory = scalar;
    }
    *op = static_cast<ncclRedOp_t>(next_op_);
    comm->ops[next_op_++] = made;
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return Call("ncclRedOpDestroy", comm, -1, [&] {
    MutexLock lock(&mutex_);
    if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
    if (comm->ops.erase(op) == 1) return ncclSuccess;
    return Fail(ncclInvalidArgument, "ncclRedOpDestroy: operator unknown to given communicator");
  });
}

ncclResult_t FakeNcclApi::AllReduce(const void* input, void* output, size_t count,
                                    ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                    cudaStream_t stream) {
  return Operate(Make(Kind::kAllReduce, input, output, count, type, 0, op), comm, stream);
}
ncclResult_t FakeNcclApi::Reduce(const void* input, void* output, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Operate(Make(Kind::kReduce, input, output, count, type, root, op), comm, stream);
}
ncclResult_t FakeNcclApi::Broadcast(const void* input, void* output, size_t count,
                                    ncclDataType_t type, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  return Operate(Make(Kind::kBroadcast, input, output, count, type, root), comm, stream);
}
ncclResult_t FakeNcclApi::AllGather(const void* input, void* output, size_t input_count,
                                    ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return Operate(Make(Kind::kAllGather, input, output, input_count, type), comm, stream);
}
ncclResult_t FakeNcclApi::ReduceScatter(const void* input, void* output, size_t output_count,
                                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                        cudaStream_t stream) {
  return Operate(Make(Kind::kReduceScatter, input, output, output_count, type, 0, op), comm,
                 stream);
}
ncclResult_t FakeNcclApi::AlltoAll(const void* input, void* output, size_t count,
                                   ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return Operate(Make(Kind::kAllToAll, input, output, count, type), comm, stream);
}
ncclResult_t FakeNcclApi::Gather(const void* input, void* output, size_t count, ncclDataType_t type,
                                 int root, ncclComm_t comm, cudaStream_t stream) {
  return Operate(Make(Kind::kGather, input, output, count, type, root), comm, stream);
}
ncclResult_t FakeNcclApi::Scatter(const void* input, void* output, size_t count,
                                  ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
  return Operate(Make(Kind::kScatter, input, output, count, type, root), comm, stream);
}
ncclResult_t FakeNcclApi::Send(const void* data, size_t count, ncclDataType_t type, int peer,
                               ncclComm_t comm, cudaStream_t stream) {
  return Operate(Make(Kind::kSend, data, nullptr, count, type, peer), comm, stream);
}
ncclResult_t FakeNcclApi::Recv(void* data, size_t count, ncclDataType_t type, int peer,
                               ncclComm_t comm, cudaStream_t stream) {
  return Operate(Make(Kind::kReceive, nullptr, data, count, type, peer), comm, stream);
}

ncclResult_t FakeNcclApi::Operate(const FakeOperation& operation, ncclComm_t comm,
                                  cudaStream_t stream) {
  return Call(FunctionOf(operation.kind).data(), comm, -1, [&] {
    Group alone;
    {
      MutexLock lock(&mutex_);
      const auto group = groups_.find(ThisThread());
      const bool grouped = group != groups_.end();
      Group& mine = grouped ? group->second : alone;
      const ncclResult_t result = Add(operation, comm, stream, mine);
      if (result != ncclSuccess && mine.error == ncclSuccess) mine.error = result;
      if (grouped || result != ncclSuccess) return result;
    }
    return Issue(std::move(alone.batches));
  });
}

ncclResult_t FakeNcclApi::Add(FakeOperation operation, ncclComm_t comm, cudaStream_t stream,
                              Group& group) {
  if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
  const bool was_well = comm->error == ncclSuccess;
  if (comm->revoked) {
    return Fail(ncclInvalidUsage,
                absl::StrCat(FunctionOf(operation.kind), ": communicator was revoked"));
  }
  if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) {
    // Stays, as NCCL has it.
    if (was_well && !comm->blocking) comm->error = ready;
    return ready;
  }
  if (comm->finalized) {
    Misused(absl::StrCat("an operation of rank ", comm->rank, " behind ncclCommFinalize"));
    return Fail(ncclInvalidUsage, "communicator was finalized");
  }
  if (Reduces(operation) && operation.op >= ncclNumOps) {
    const auto made = comm->ops.find(operation.op);
    if (made == comm->ops.end() || made->second.type != operation.type) {
      return Fail(ncclInvalidArgument, "reduction operator unknown to the communicator");
    }
    operation.op = ncclNumOps;
    operation.scalar = made->second.scalar;
    operation.scalar_memory = made->second.memory;
  }
  const int ranks = comm->founding->clique->ranks();
  const ncclResult_t valid = CheckFakeOperation(operation, comm->rank, ranks);
  if (valid != ncclSuccess) {
    return Fail(valid, absl::StrCat("invalid argument of ", Describe(operation)));
  }
  if (operation.count == 0 && !IsMessage(operation)) return ncclSuccess;
  operation.hangs = hangs_next_;
  hangs_next_ = false;
  for (const std::unique_ptr<Batch>& batch : group.batches) {
    if (batch->comm != comm || batch->stream != stream) continue;
    batch->operations.push_back(operation);
    return ncclSuccess;
  }
  auto batch = std::make_unique<Batch>();
  batch->nccl = this;
  batch->comm = comm;
  batch->stream = stream;
  batch->operations.push_back(operation);
  group.batches.push_back(std::move(batch));
  return ncclSuccess;
}

ncclResult_t FakeNcclApi::GroupStart() {
  return Call("ncclGroupStart", nullptr, -1, [&] {
    MutexLock lock(&mutex_);
    ++groups_[ThisThread()].depth;
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::GroupEnd() {
  // Outside of the call: one that fails ends the group as well.
  std::optional<Group> ended;
  bool is_inner = false;
  {
    MutexLock lock(&mutex_);
    const auto group = groups_.find(ThisThread());
    if (group != groups_.end()) {
      is_inner = --group->second.depth > 0;
      if (!is_inner) {
        ended = std::move(group->second);
        groups_.erase(group);
      }
    }
  }
  const bool has_batches = ended.has_value() && !ended->batches.empty();
  return Call("ncclGroupEnd", has_batches ? ended->batches.front()->comm : nullptr, -1, [&] {
    if (is_inner) return ncclSuccess;
    if (!ended.has_value()) {
      Misused("ncclGroupEnd without ncclGroupStart");
      MutexLock lock(&mutex_);
      return Fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
    }
    if (ended->error != ncclSuccess) return ended->error;
    return Issue(std::move(ended->batches));
  });
}

ncclResult_t FakeNcclApi::Issue(std::vector<std::unique_ptr<Batch>> batches) {
  ncclResult_t result = ncclSuccess;
  for (std::unique_ptr<Batch>& batch : batches) {
    {
      MutexLock lock(&mutex_);
      ncclComm& comm = *batch->comm;
      if (!comm.blocking && !comm.connected) {
        comm.connected = true;
        comm.polls_to_connect = options_.polls_to_connect;
      }
      if (!comm.connecting.empty() || comm.polls_to_connect > 0) {
        comm.connecting.push_back(std::move(batch));
        result = ncclInProgress;
        continue;
      }
    }
    const ncclResult_t launched = Launch(std::move(batch));
    if (launched != ncclSuccess) return launched;
  }
  return result;
}

ncclResult_t FakeNcclApi::Launch(std::unique_ptr<Batch> batch) {
  Batch* const launched = batch.get();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(launched->stream, &capture);
  // A captured operation may run any number of times, or never.
  launched->is_awaited = capture == cudaStreamCaptureStatusNone;
  {
    MutexLock lock(&mutex_);
    if (launched->is_awaited) {
      ++launched->comm->on_streams;
      launched->number = launched->comm->batches++;
    }
    launched_.push_back(std::move(batch));
  }
  const cudaError_t error = cudaLaunchHostFunc(launched->stream, RunBatch, launched);
  if (error == cudaSuccess) return ncclSuccess;
  MutexLock lock(&mutex_);
  if (launched->is_awaited) {
    --launched->comm->on_streams;
    --launched->comm->batches;
  }
  return Fail(ncclUnhandledCudaError,
              absl::StrCat("Cuda failure ", static_cast<int>(error), " at launch"));
}

void FakeNcclApi::RunBatch(void* argument) {
  Batch& batch = *static_cast<Batch*>(argument);
  FakeNcclApi& nccl = *batch.nccl;
  std::shared_ptr<FakeClique> clique;
  {
    MutexLock lock(&nccl.mutex_);
    ++nccl.running_;
    if (batch.is_awaited) nccl.AwaitEarlierBatches(batch);
    clique = batch.comm->founding->clique;
  }
  clique->Run(batch.comm->rank, batch.operations, nccl.options_.timeout);
  MutexLock lock(&nccl.mutex_);
  --nccl.running_;
  if (batch.is_awaited) {
    --batch.comm->on_streams;
    batch.comm->batches_done = std::max(batch.comm->batches_done, batch.number + 1);
  }
  nccl.changed_.SignalAll();
}

void FakeNcclApi::AwaitEarlierBatches(const Batch& batch) {
  const Instant deadline = Clock::Steady().Now() + options_.timeout;
  while (batch.comm->batches_done < batch.number && !batch.comm->stopped) {
    if (Clock::Steady().Now() > deadline) {
      return Misused(absl::StrCat("rank ", batch.comm->rank,
                                  " waited too long behind an operation on another stream"));
    }
    changed_.WaitWithTimeout(&mutex_, deadline - Clock::Steady().Now());
  }
}

}  // namespace cohort::worker
