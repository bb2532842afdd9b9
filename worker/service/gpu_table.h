// The GPUs that clients of this worker have.
#ifndef COHORT_WORKER_SERVICE_GPU_TABLE_H_
#define COHORT_WORKER_SERVICE_GPU_TABLE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "worker/group/gpu_of_worker.h"

namespace cohort::worker {

// By the name that is the same in every process; each is opened when first asked for, and stays.
// Thread-safe.
class GpuTable {
 public:
  using Opener = std::function<absl::StatusOr<GpuOfWorker>(const std::string& uuid)>;

  explicit GpuTable(Opener open) : open_(std::move(open)) {}

  // Errors: INVALID_ARGUMENT (no name), and the opener's.
  absl::StatusOr<GpuOfWorker> Find(const std::string& uuid);

 private:
  const Opener open_;
  Mutex mutex_;
  std::map<std::string, GpuOfWorker> gpus_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_GPU_TABLE_H_
