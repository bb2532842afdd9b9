// Where the tensors of a rank under test lie, and who moves them: on host memory, to prove the
// test, or on a GPU.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_PLANE_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_PLANE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/data_type.h"
#include "base/reduction.h"
#include "client/rendezvous/process_group.h"
#include "worker/communicator/communicator.h"

namespace cohort::testing {

// Movable.
struct Formed {
  // By way of the host; null where `verbs` has it.
  std::unique_ptr<worker::Communicator> host;
  std::unique_ptr<worker::Communicator> verbs;
};

// One thread at a time.
class Plane {
 public:
  virtual ~Plane() = default;

  // All ranks of `group`'s generation call it, with a communicator by way of the host.
  virtual absl::StatusOr<Formed> Form(client::ProcessGroup& group,
                                      std::unique_ptr<worker::Communicator> host,
                                      absl::Duration timeout) = 0;
  // Those who are left of `verbs`' group call it, with a new communicator by way of the host: what
  // comes behind that group, without forming it anew where the plane can. `verbs` has ended then.
  virtual absl::StatusOr<Formed> Shrink(client::ProcessGroup& group, worker::Communicator& verbs,
                                        std::unique_ptr<worker::Communicator> host,
                                        absl::Duration timeout) = 0;
  // `body` makes so many calls of verbs of the communicator that it is given. They are recorded,
  // where the plane can, and done `times` times. All ranks call it.
  virtual absl::Status RunRecorded(worker::Communicator& verbs, int calls,
                                   absl::FunctionRef<absl::Status(worker::Communicator&)> body,
                                   int times, Instant deadline) = 0;
  // Whether there is such a reduction; else it is UNIMPLEMENTED.
  virtual bool Reduces(DataType type, ReduceOp op) const = 0;

  // For tensors; stays as long as the plane, since operations that failed may still use it.
  virtual absl::StatusOr<char*> Allocate(size_t bytes) = 0;
  // Both are done when they return.
  virtual absl::Status Write(absl::string_view bytes, char* to, Instant deadline) = 0;
  virtual absl::StatusOr<std::string> Read(const char* from, size_t bytes, Instant deadline) = 0;
};

std::unique_ptr<Plane> MakeHostPlane();

// Whether there is a GPU. Errors: FAILED_PRECONDITION.
absl::Status CheckForDevice();

// Device 0. NCCL's RAS threads listen at `ras_address`; empty: there are none. `seat` sets this
// process apart from the other ranks on the device: NCCL takes those for ranks of one host, and
// refuses them. To be called before anything else calls NCCL. Errors: FAILED_PRECONDITION (there is
// no GPU), those of LoadNccl.
absl::StatusOr<std::unique_ptr<Plane>> MakeDevicePlane(int seat, const std::string& ras_address);

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_PLANE_H_
