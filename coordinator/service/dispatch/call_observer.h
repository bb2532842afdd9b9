// The interface through which services report calls to metrics.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_CALL_OBSERVER_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_CALL_OBSERVER_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/service/dispatch/method_table.h"

namespace cohort::coordinator {

// Called for every call; must be quick and must not lock.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void OnStarted(Method method) = 0;
  virtual void OnHandled(Method method, absl::StatusCode code, absl::Duration took) = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_CALL_OBSERVER_H_
