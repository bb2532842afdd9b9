// The GPUs that clients of this worker have.
#ifndef COHORT_WORKER_SERVICE_GPU_TABLE_H_
#define COHORT_WORKER_SERVICE_GPU_TABLE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
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

  // Blocks while that GPU is opened, and not for others. Errors: INVALID_ARGUMENT (no name), and
  // the opener's.
  absl::StatusOr<GpuOfWorker> Find(const std::string& uuid);

 private:
  struct Place {
    Mutex mutex;  // held while it is opened
    std::optional<GpuOfWorker> gpu ABSL_GUARDED_BY(mutex);
  };

  std::shared_ptr<Place> PlaceOf(const std::string& uuid);
  // Whether it still is: not once it could not be opened.
  bool IsPlace(const std::string& uuid, const std::shared_ptr<Place>& place);
  absl::StatusOr<GpuOfWorker> Open(const std::string& uuid, Place& place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(place.mutex);

  const Opener open_;
  Mutex mutex_;
  // Of those that are open or being opened: names that are none are not kept.
  std::map<std::string, std::shared_ptr<Place>> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_GPU_TABLE_H_
