// NCCL's communicator, and how it begins and ends within a deadline.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_CLIQUE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_CLIQUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "worker/communicator/nccl/api/nccl_api.h"
#include "worker/communicator/nccl/clique/nccl_memory.h"

namespace cohort::worker {

// The number of roots from which a group of `size` starts: beyond a hundred ranks or so several are
// faster. Each root needs an id.
int NcclRoots(int size);
// The rank that makes the root's id.
int RankOfNcclRoot(int root);
// Makes an id. It is valid for one group, while this process lives, which serves it. A secret:
// never logged.
absl::StatusOr<std::string> NewNcclId(NcclApi& nccl);

struct NcclCliqueOptions {
  int device = 0;
  int rank = 0;
  int size = 1;
  std::vector<std::string> ids;
  std::string name;
};

// Non-blocking: NCCL's calls return immediately, and are polled until they are through. One thread
// at a time, except for TryHealth and Revoke.
class NcclClique {
 public:
  // `standing` is called now and then, and says whether to go on. Errors: INVALID_ARGUMENT (invalid
  // ids), DEADLINE_EXCEEDED, those of `standing` and NCCL. After an error nothing is left of the
  // clique.
  static absl::StatusOr<std::unique_ptr<NcclClique>> Form(
      std::shared_ptr<NcclApi> nccl, const NcclCliqueOptions& options, Instant deadline,
      absl::FunctionRef<absl::Status()> standing);
  // If it was not revoked, gives the other ranks a moment to end, too; otherwise ends the rest of
  // it. If NCCL's call does not return, its thread is left behind, and the log says so. If no
  // thread can start, NCCL's communicator and its memory stay until the process ends; the log says
  // so, too.
  ~NcclClique();

  ncclComm_t comm() const { return comm_; }
  int device() const { return options_.device; }

  // Whether NCCL has detected an error since. Errors: NCCL's, and those of NcclDeviceLock::Acquire.
  absl::Status Health(Instant deadline);
  // Like Health, but does not wait: OK while another call holds the lock.
  absl::Status TryHealth();
  // Waits until calls that returned ncclInProgress are through.
  absl::Status AwaitCalls(const char* call, Instant deadline,
                          absl::FunctionRef<absl::Status()> standing);
  // Registers memory with NCCL for operations of this clique: as a symmetric window, which all
  // ranks make of memory of one size, or by itself. Ends with the clique at the latest. Errors:
  // those of AwaitCalls.
  absl::Status Register(std::shared_ptr<NcclMemory> memory, bool as_window, Instant deadline,
                        absl::FunctionRef<absl::Status()> standing);
  // Ends the registration of the memory at `data`; nothing in flight uses it. Errors:
  // INVALID_ARGUMENT (it is not registered), those of NCCL and NcclDeviceLock::Acquire.
  absl::Status Deregister(const void* data, Instant deadline);
  // The window and offset of memory that is registered as a whole.
  struct WindowOffset {
    // For windows alone: the window, and the offset in it. They are the same on all ranks in an
    // operation, since each rank finds the others' memory by its own.
    int64_t window = 0;  // 0: none
    int64_t offset = 0;
  };
  // nullopt: the memory is not registered.
  std::optional<WindowOffset> Find(const void* memory, size_t bytes) const;

  // Ends all operations in flight on this rank; afterwards the clique can only be destroyed.
  // Returns when that is done or too slow. Returns immediately with kNot, or if it was called
  // before. Any thread may call it. If no thread can start for it, the log says so, and the next
  // Revoke tries again.
  enum class Wait { kBriefly, kNot };
  void Revoke(Wait wait = Wait::kBriefly);

 private:
  // One of the two handles is set, once NCCL has made it.
  struct Registration {
    std::shared_ptr<NcclMemory> memory;
    void* buffer = nullptr;
    ncclWindow_t window = nullptr;
    int64_t number = 0;  // from 1, the same on all ranks
  };

  NcclClique(std::shared_ptr<NcclApi> nccl, NcclCliqueOptions options);
  static ncclResult_t End(NcclApi& nccl, ncclComm_t comm, const Registration& registration);

  // Serializes the calls that end something; after the last one, none runs.
  struct Ending {
    Mutex mutex;
    bool gone ABSL_GUARDED_BY(mutex) = false;
  };

  // Runs `end` on a thread of its own, unless the clique is gone; it is gone after a call with
  // `last`. `end` gets whether it holds the device's lock. It waits for the lock for half
  // of `timeout` only, since a call of another group may never return. Errors: DEADLINE_EXCEEDED
  // (not done within `timeout`; it goes on by itself), RESOURCE_EXHAUSTED (no thread could start,
  // so `end` did not run).
  static absl::Status RunAside(std::shared_ptr<Ending> ending, int device, bool last,
                               absl::Duration timeout, std::function<void(bool)> end);

  const std::shared_ptr<NcclApi> nccl_;
  const NcclCliqueOptions options_;
  const std::shared_ptr<Ending> ending_;
  ncclComm_t comm_ = nullptr;
  std::vector<std::shared_ptr<Registration>> registrations_;
  int64_t registered_ = 0;  // so far
  std::atomic<bool> revoked_{false};
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_CLIQUE_H_
