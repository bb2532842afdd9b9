// The GPUs of this worker's clients.
#ifndef COHORT_WORKER_DAEMON_GPU_GPU_TABLE_H_
#define COHORT_WORKER_DAEMON_GPU_GPU_TABLE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/threads/mutex.h"
#include "worker/group/shared_gpu/gpu_of_worker.h"

namespace cohort::worker {

// Finds GPUs by UUID. Opens each on the first request, and keeps it open. Thread-safe.
class GpuTable {
 public:
  using Opener = std::function<absl::StatusOr<GpuOfWorker>(const std::string& uuid)>;

  explicit GpuTable(Opener open) : open_(std::move(open)) {}

  // Blocks while that GPU is opened; requests for other GPUs continue. Errors: INVALID_ARGUMENT (no
  // name), and those of the opener.
  absl::StatusOr<GpuOfWorker> Find(const std::string& uuid);

 private:
  struct Place {
    Mutex mutex;  // held while it is opened
    std::optional<GpuOfWorker> gpu ABSL_GUARDED_BY(mutex);
  };

  std::shared_ptr<Place> PlaceOf(const std::string& uuid);
  // Whether `place` is still in the table; it is not once its GPU could not be opened.
  bool IsPlace(const std::string& uuid, const std::shared_ptr<Place>& place);
  absl::StatusOr<GpuOfWorker> Open(const std::string& uuid, Place& place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(place.mutex);

  const Opener open_;
  Mutex mutex_;
  // GPUs that are open or being opened. A name that could not be opened is removed.
  std::map<std::string, std::shared_ptr<Place>> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_GPU_GPU_TABLE_H_
