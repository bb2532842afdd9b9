// The NCCL of this machine, if it has one.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_LOADED_NCCL_API_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_LOADED_NCCL_API_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/communicator/nccl/api/nccl_api.h"

namespace cohort::worker {

// 2.28.7, the first with ncclCommRevoke.
inline constexpr int kLeastNcclVersion = 22807;

// Such as "2.28.9", of 22809.
std::string NcclVersionText(int version);

// `path`, or else $COHORT_NCCL_LIBRARY, and no other if one of them is given. Otherwise the first
// of these that can be opened: libnccl.so.2 as the loader finds it, which is the one that another
// library of this process has loaded, if any; that of the toolkit in $CUDA_HOME; and of
// /usr/local/cuda.
//
// A library that was loaded stays until the process ends, for its threads, and is what later calls
// with the same `path` get. A failure leaves nothing: the next call tries again. Thread-safe.
//
// Errors: NOT_FOUND (names the paths that were tried, and how to get NCCL), FAILED_PRECONDITION
// (the library is older than kLeastNcclVersion, or lacks a function).
absl::StatusOr<std::shared_ptr<NcclApi>> LoadNccl(const std::string& path = "");

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_LOADED_NCCL_API_H_
