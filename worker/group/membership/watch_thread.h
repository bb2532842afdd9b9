// A thread that notices when other processes end.
#ifndef COHORT_WORKER_GROUP_MEMBERSHIP_WATCH_THREAD_H_
#define COHORT_WORKER_GROUP_MEMBERSHIP_WATCH_THREAD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"

namespace cohort::worker {

// One for all groups of a process; it sleeps until a watched descriptor is readable. Thread-safe.
class WatchThread {
 public:
  // Returns the process's watch thread, which ends with its last holder. Errors:
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<WatchThread>> Shared();
  ~WatchThread();

  // `on_readable` runs on the watch thread whenever `fd` is readable or its other side has
  // closed it. If it returns false, it is not called again. It must not block, nor call Watch or
  // Unwatch. The caller keeps `fd`, open until Unwatch.
  using Watched = uint64_t;
  Watched Watch(int fd, std::function<bool()> on_readable);
  // Once it has returned, `on_readable` does not run any more.
  void Unwatch(Watched watched);

 private:
  WatchThread(UniqueFd poll, UniqueFd stop);
  void Run();

  struct Entry {
    int fd;
    std::function<bool()> on_readable;
  };

  const UniqueFd poll_;
  const UniqueFd stop_;
  Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Watched, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_MEMBERSHIP_WATCH_THREAD_H_
