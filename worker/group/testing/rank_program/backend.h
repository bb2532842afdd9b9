// The memory of a rank under test, and its communicator: on the host, to check the test itself, or
// on a GPU.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_BACKEND_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_BACKEND_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "client/rendezvous/process_group/process_group.h"
#include "worker/communicator/communicator.h"

namespace cohort::testing {

// Movable.
struct Formed {
  // A communicator of the host; null if `communicator` owns it.
  std::unique_ptr<worker::Communicator> host;
  std::unique_ptr<worker::Communicator> communicator;
};

// One thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;

  // Forms the communicator. All ranks of `group`'s generation call it, with a communicator of the
  // host.
  virtual absl::StatusOr<Formed> Form(client::ProcessGroup& group,
                                      std::unique_ptr<worker::Communicator> host,
                                      absl::Duration timeout) = 0;
  // Runs `calls` calls that `body` makes on its argument, `times` times. A backend that can record
  // calls replays them. All ranks call it.
  virtual absl::Status RunRecorded(worker::Communicator& communicator, int calls,
                                   absl::FunctionRef<absl::Status(worker::Communicator&)> body,
                                   int times, Instant deadline) = 0;
  // Whether the backend has the reduction in a group of so many ranks; without it a call is
  // UNIMPLEMENTED.
  virtual bool Reduces(DataType type, ReduceOp op, int ranks) const = 0;

  // Allocates memory for tensors. It lives as long as the backend, because failed operations may
  // still use it.
  virtual absl::StatusOr<char*> Allocate(size_t bytes) = 0;
  // Both block until they are done.
  virtual absl::Status Write(absl::string_view bytes, char* to, Instant deadline) = 0;
  virtual absl::StatusOr<std::string> Read(const char* from, size_t bytes, Instant deadline) = 0;
};

std::unique_ptr<Backend> MakeHostBackend();

// Returns OK if there is a GPU. Errors: FAILED_PRECONDITION.
absl::Status CheckForDevice();

// Uses device 0. NCCL's RAS threads listen at `ras_address`; if it is empty, RAS is off. `rank`
// distinguishes this process from the other ranks on the device: NCCL refuses several ranks of one
// host on one device. Called before any other call of NCCL. Errors: FAILED_PRECONDITION (no GPU),
// those of LoadNccl.
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(int rank,
                                                           const std::string& ras_address);

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_BACKEND_H_
