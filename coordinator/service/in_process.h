// The coordinator without sockets: request bytes in, status and answer bytes out. For fuzzing and
// for tests of what lies between the wire and the state machine.
#ifndef COHORT_COORDINATOR_SERVICE_IN_PROCESS_H_
#define COHORT_COORDINATOR_SERVICE_IN_PROCESS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/method.h"

namespace cohort::coordinator {

struct InProcessOptions {
  Limits limits;
  int shards = 1;
  // A call that is not answered within this is cancelled, as if its caller had gone.
  absl::Duration patience = absl::ZeroDuration();
  // Must outlive the coordinator.
  const Clock* clock = &Clock::Steady();
};

// A call that waits for its answer. Must not outlive its coordinator. Destroyed without an answer:
// cancelled, as if its caller had gone.
class InProcessCall {
 public:
  virtual ~InProcessCall() = default;
  virtual bool WaitFor(absl::Duration patience) = 0;  // whether there is an answer
  virtual absl::StatusOr<std::string> Take() = 0;     // once; waits for the answer
};

// Thread-safe. Keeps everything in memory.
class InProcessCoordinator {
 public:
  explicit InProcessCoordinator(const InProcessOptions& options = {});
  ~InProcessCoordinator();

  // Parse, decode, state machine, encode, for every method with one answer (and for one step of a
  // watch). Errors: the call's; CANCELLED (not answered in time).
  absl::StatusOr<std::string> Handle(Method method, absl::string_view request_bytes);
  // By "cohort.v1.GroupService/Join". Errors besides: UNIMPLEMENTED (no such method).
  absl::StatusOr<std::string> Handle(absl::string_view method_path,
                                     absl::string_view request_bytes);

  // As Handle, but leaves the call parked when it is not answered at once. An Upload is a whole
  // blob in one part, whose checksum is not looked at.
  std::unique_ptr<InProcessCall> Begin(Method method, absl::string_view request_bytes);

  Engine& engine() { return *engine_; }

 private:
  const InProcessOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_IN_PROCESS_H_
