// One timeout for several calls of one collective.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_SHARED_TIMEOUT_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_SHARED_TIMEOUT_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/clock.h"
#include "client/collective/group.h"

namespace cohort::parallel {

class SharedTimeout {
 public:
  explicit SharedTimeout(const client::CallOptions& options)
      : options_(options), begun_(Clock::Steady().Now()) {}

  // On a stream the timeout limits the device's work.
  client::CallOptions Left() const {
    client::CallOptions left = options_;
    if (left.timeout.has_value() && !left.stream.has_value()) {
      left.timeout =
          std::max(*left.timeout - (Clock::Steady().Now() - begun_), absl::ZeroDuration());
    }
    return left;
  }
  // Options for the calls that go through the host.
  client::CallOptions LeftOnHost() const {
    client::CallOptions left = Left();
    if (left.stream.has_value()) left = {};
    return left;
  }

 private:
  const client::CallOptions options_;
  const Instant begun_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_SHARED_TIMEOUT_H_
