// NCCL's communicator, and how it begins and ends within a deadline.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_CLIQUE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_CLIQUE_H_

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
#include "base/mutex.h"
#include "worker/communicator/nccl/nccl_api.h"
#include "worker/communicator/nccl/nccl_memory.h"

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

// Non-blocking: NCCL's calls return at once, and are asked how far they are. One thread at a
// time, but for TryHealth and Revoke.
class NcclClique {
 public:
  // `standing` is asked now and then whether to go on. Errors: INVALID_ARGUMENT (ids that are
  // none), DEADLINE_EXCEEDED, what `standing` says, those of NCCL. Then nothing is left of it.
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

  // Whether NCCL has noticed that something went wrong since. Errors: its, and those of
  // NcclLane::Enter.
  absl::Status Health(Instant deadline);
  // Like Health, but does not wait: OK while another call is in the lane.
  absl::Status TryHealth();
  // Until calls that returned ncclInProgress are through.
  absl::Status AwaitCalls(const char* call, Instant deadline,
                          absl::FunctionRef<absl::Status()> standing);
  // With NCCL, for operations of this clique: as a symmetric window, which all ranks make of memory
  // of one size, or by itself. Ends with the clique, if not before. Errors: those of AwaitCalls.
  absl::Status Register(std::shared_ptr<NcclMemory> memory, bool as_window, Instant deadline,
                        absl::FunctionRef<absl::Status()> standing);
  // What begins at `data`; nothing in flight uses it. Errors: INVALID_ARGUMENT (it is not
  // registered), those of NCCL and NcclLane::Enter.
  absl::Status Deregister(const void* data, Instant deadline);
  // Where memory is registered, all of it.
  struct Place {
    // Windows alone: which, and how far behind its beginning. The same on all ranks in an
    // operation, since each finds the others' memory by its own.
    int64_t window = 0;  // 0: none
    int64_t offset = 0;
  };
  // nullopt: it is not.
  std::optional<Place> Find(const void* memory, size_t bytes) const;

  // Those of its ranks that are not `gone`, which is in ascending order and the same for all of
  // them; all of them call it, with nothing in flight, or with `abort`, which ends that. Whatever
  // comes of it, only the end of this one may follow. `name`: of the new one. Errors: as Form.
  absl::StatusOr<std::unique_ptr<NcclClique>> Shrink(const std::vector<int>& gone, bool abort,
                                                     const std::string& name, Instant deadline,
                                                     absl::FunctionRef<absl::Status()> standing);
  // Ends all operations in flight on this rank; afterwards the clique can only be destroyed.
  // Returns when that is done or too slow. Returns immediately with kDoNotWait, or if it was called
  // before. Any thread may call it. If no thread can start for it, the log says so, and the next
  // Revoke tries again.
  enum class Patience { kAMoment, kDoNotWait };
  void Revoke(Patience patience = Patience::kAMoment);

 private:
  // One of the two, once NCCL has it.
  struct Registration {
    std::shared_ptr<NcclMemory> memory;
    void* buffer = nullptr;
    ncclWindow_t window = nullptr;
    int64_t number = 0;  // from 1, the same on all ranks
  };

  NcclClique(std::shared_ptr<NcclApi> nccl, NcclCliqueOptions options);
  static ncclResult_t End(NcclApi& nccl, ncclComm_t comm, const Registration& registration);

  // What ends something does it one after the other, and nothing behind the last.
  struct Ending {
    Mutex mutex;
    bool gone ABSL_GUARDED_BY(mutex) = false;
  };

  // Runs `end` on a thread of its own; not when the clique is gone, which it is behind the `last`.
  // It is told whether it has its turn in the device's lane: for half of `patience` it waits for
  // that, since another's call that does not come back must not keep this from its end. Errors:
  // DEADLINE_EXCEEDED (not done within `patience`; it goes on by itself), RESOURCE_EXHAUSTED (no
  // thread could start, so `end` did not run).
  static absl::Status RunAside(std::shared_ptr<Ending> ending, int device, bool last,
                               absl::Duration patience, std::function<void(bool)> end);

  const std::shared_ptr<NcclApi> nccl_;
  const NcclCliqueOptions options_;
  const std::shared_ptr<Ending> ending_;
  ncclComm_t comm_ = nullptr;
  std::vector<std::shared_ptr<Registration>> registrations_;
  int64_t registered_ = 0;  // so far
  std::atomic<bool> revoked_{false};
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_CLIQUE_H_
