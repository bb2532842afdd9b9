// How long one looks before one sleeps, and what ends a wait besides what it is for.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_PATIENCE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_PATIENCE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "client/rendezvous/cancellation.h"

namespace cohort::parallel {

// Of one call: everything it waits for ends by these.
struct Patience {
  Instant deadline = absl::InfiniteFuture();
  client::Cancellation* cancellation = nullptr;
};

// Whether `done` within some microseconds of looking, after which a sleeper costs less. Does not
// spin where `parties` exceed the processors: that would keep from working the one who is waited
// for; it is offered the processor instead.
bool LookFor(absl::FunctionRef<bool()> done, uint32_t parties);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_PATIENCE_H_
