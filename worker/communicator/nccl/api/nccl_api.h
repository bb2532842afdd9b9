// The functions of NCCL that Cohort uses: the seam between NCCL and the code that calls it.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_API_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_API_H_

#include <cstddef>
#include <string>

#include "cuda_runtime_api.h"
#include "nccl.h"

namespace cohort::worker {

// Each method is the function of NCCL of that name (ncclCommAbort is CommAbort), with its
// arguments, results and rules about threads; see nccl.h of 2.28. The real library is loaded at run
// time (loaded_nccl_api.h), so that programs start on machines without it; tests have a fake
// (testing/fake_nccl_api.h).
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // The library's file, or the name of a fake, for people.
  virtual const std::string& source() const = 0;
  // As NCCL codes it: 22809 is 2.28.9.
  virtual int version() const = 0;

  // --- Communicators.
  virtual ncclResult_t GetUniqueId(ncclUniqueId* id) = 0;
  virtual ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                          ncclConfig_t* config) = 0;
  virtual ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                            ncclUniqueId* ids, ncclConfig_t* config) = 0;
  virtual ncclResult_t CommShrink(ncclComm_t comm, int* excluded, int excluded_count,
                                  ncclComm_t* shrunk, ncclConfig_t* config, int flags) = 0;
  virtual ncclResult_t CommRevoke(ncclComm_t comm, int flags) = 0;
  virtual ncclResult_t CommFinalize(ncclComm_t comm) = 0;
  virtual ncclResult_t CommDestroy(ncclComm_t comm) = 0;
  virtual ncclResult_t CommAbort(ncclComm_t comm) = 0;
  virtual ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) = 0;
  virtual const char* GetErrorString(ncclResult_t result) = 0;
  // `comm` may be null: of the thread.
  virtual const char* GetLastError(ncclComm_t comm) = 0;

  // --- Memory.
  virtual ncclResult_t MemAlloc(void** memory, size_t bytes) = 0;
  virtual ncclResult_t MemFree(void* memory) = 0;
  virtual ncclResult_t CommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) = 0;
  virtual ncclResult_t CommDeregister(ncclComm_t comm, void* handle) = 0;
  virtual ncclResult_t CommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                          ncclWindow_t* window, int flags) = 0;
  virtual ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) = 0;

  // --- Reductions that are no constants.
  virtual ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                            ncclScalarResidence_t residence, ncclComm_t comm) = 0;
  virtual ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) = 0;

  // --- Collectives and messages.
  virtual ncclResult_t AllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t Reduce(const void* input, void* output, size_t count, ncclDataType_t type,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t Broadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                                 int root, ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t AllGather(const void* input, void* output, size_t input_count,
                                 ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t ReduceScatter(const void* input, void* output, size_t output_count,
                                     ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream) = 0;
  virtual ncclResult_t AlltoAll(const void* input, void* output, size_t count, ncclDataType_t type,
                                ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t Gather(const void* input, void* output, size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t Scatter(const void* input, void* output, size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t Send(const void* data, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t Recv(void* data, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, cudaStream_t stream) = 0;
  virtual ncclResult_t GroupStart() = 0;
  virtual ncclResult_t GroupEnd() = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_API_H_
