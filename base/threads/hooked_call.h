// Calls of libraries whose waits run no WaitHook, such as gRPC's blocking calls.
#ifndef COHORT_BASE_THREADS_HOOKED_CALL_H_
#define COHORT_BASE_THREADS_HOOKED_CALL_H_

#include "absl/functional/function_ref.h"

namespace cohort {

// Runs `call`, and returns when it has returned. If the calling thread has a WaitHook, another
// thread runs `call`, and this one waits and runs its hook. That costs some 30 us, so it is for calls
// that take longer. If no thread can start, the hook does not run.
void RunHooked(absl::FunctionRef<void()> call);

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_HOOKED_CALL_H_
