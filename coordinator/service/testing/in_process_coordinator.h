// The coordinator without sockets: it takes request bytes and returns a status or answer bytes. For
// fuzzing, and for tests of the layers between the wire and the state machine.
#ifndef COHORT_COORDINATOR_SERVICE_TESTING_IN_PROCESS_COORDINATOR_H_
#define COHORT_COORDINATOR_SERVICE_TESTING_IN_PROCESS_COORDINATOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/engine/engine.h"

namespace cohort::coordinator {

struct InProcessOptions {
  Limits limits;
  int shards = 1;
  // A call that is not answered within this time is cancelled, as if its caller were gone.
  absl::Duration timeout = absl::ZeroDuration();
  // Must outlive the coordinator.
  const Clock* clock = &Clock::Steady();
};

// A call that waits for its answer. It must not outlive its coordinator. If it is destroyed without
// an answer, the call is cancelled, as if its caller were gone.
class InProcessCall {
 public:
  virtual ~InProcessCall() = default;
  virtual bool WaitFor(absl::Duration timeout) = 0;   // whether there is an answer
  virtual absl::StatusOr<std::string> Take() = 0;     // once; waits for the answer
};

// Thread-safe. Keeps everything in memory.
class InProcessCoordinator {
 public:
  explicit InProcessCoordinator(const InProcessOptions& options = {});
  ~InProcessCoordinator();

  // Runs a call of any method with one answer, or one step of a watch: parses, decodes, handles and
  // encodes. Errors: the call's; CANCELLED (not answered in time).
  absl::StatusOr<std::string> Handle(Method method, absl::string_view request_bytes);
  // By "cohort.v1.GroupService/Join". Errors besides: UNIMPLEMENTED (no such method).
  absl::StatusOr<std::string> Handle(absl::string_view method_path,
                                     absl::string_view request_bytes);

  // Like Handle, but leaves the call parked if it is not answered at once. An Upload is a whole
  // blob in one part, whose checksum is not checked.
  std::unique_ptr<InProcessCall> Begin(Method method, absl::string_view request_bytes);

  Engine& engine() { return *engine_; }

 private:
  const InProcessOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_TESTING_IN_PROCESS_COORDINATOR_H_
