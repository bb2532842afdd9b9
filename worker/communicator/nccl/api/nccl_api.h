// The functions of NCCL that Cohort uses: the seam between NCCL and the code that calls it.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_API_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_API_H_

#include <functional>
#include <string>

#include "cuda_runtime_api.h"
#include "nccl.h"

namespace cohort::worker {

// A table of functions. Each has the name of its function in nccl.h of 2.28 without "nccl":
// ncclCommAbort is CommAbort. Arguments, results and rules about threads are those of nccl.h. The
// real library is loaded at run time (loaded_nccl_api.h), so that programs start on machines
// without it. Tests have a fake (testing/fake_nccl_api.h).
struct NcclApi {
  // The library's file, or the name of a fake, for people.
  std::string source;
  // As NCCL codes it: 22809 is 2.28.9.
  int version = 0;

  // --- Communicators.
  std::function<decltype(ncclGetUniqueId)> GetUniqueId;
  std::function<decltype(ncclCommInitRankConfig)> CommInitRankConfig;
  std::function<decltype(ncclCommInitRankScalable)> CommInitRankScalable;
  std::function<decltype(ncclCommRevoke)> CommRevoke;
  std::function<decltype(ncclCommFinalize)> CommFinalize;
  std::function<decltype(ncclCommDestroy)> CommDestroy;
  std::function<decltype(ncclCommAbort)> CommAbort;
  std::function<decltype(ncclCommGetAsyncError)> CommGetAsyncError;
  std::function<decltype(ncclGetErrorString)> GetErrorString;
  // A null communicator means: of the thread.
  std::function<decltype(ncclGetLastError)> GetLastError;

  // --- Memory.
  std::function<decltype(ncclMemAlloc)> MemAlloc;
  std::function<decltype(ncclMemFree)> MemFree;
  std::function<decltype(ncclCommRegister)> CommRegister;
  std::function<decltype(ncclCommDeregister)> CommDeregister;
  std::function<decltype(ncclCommWindowRegister)> CommWindowRegister;
  std::function<decltype(ncclCommWindowDeregister)> CommWindowDeregister;

  // --- Reductions that are no constants.
  std::function<decltype(ncclRedOpCreatePreMulSum)> RedOpCreatePreMulSum;
  std::function<decltype(ncclRedOpDestroy)> RedOpDestroy;

  // --- Collectives and messages.
  std::function<decltype(ncclAllReduce)> AllReduce;
  std::function<decltype(ncclReduce)> Reduce;
  std::function<decltype(ncclBroadcast)> Broadcast;
  std::function<decltype(ncclAllGather)> AllGather;
  std::function<decltype(ncclReduceScatter)> ReduceScatter;
  std::function<decltype(ncclAlltoAll)> AlltoAll;
  std::function<decltype(ncclGather)> Gather;
  std::function<decltype(ncclScatter)> Scatter;
  std::function<decltype(ncclSend)> Send;
  std::function<decltype(ncclRecv)> Recv;
  std::function<decltype(ncclGroupStart)> GroupStart;
  std::function<decltype(ncclGroupEnd)> GroupEnd;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_API_H_
