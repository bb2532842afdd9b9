// A started call and its result.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_PENDING_CALL_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_PENDING_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/collective/async_calls.h"

namespace cohort::parallel {

// A call of client::AsyncCalls and its result. Cheap to copy; copies are of the same call. Like
// PendingCall, it is thread-safe, and a caller may drop it without waiting.
template <typename T>
class Pending {
 public:
  // `call` runs on the thread of `calls`, after the calls that were started before.
  static Pending Start(client::AsyncCalls& calls,
                       std::function<absl::StatusOr<T>(client::Group&)> call) {
    auto answer = std::make_shared<std::optional<T>>();
    client::PendingCall pending =
        calls.Start([answer, call = std::move(call)](client::Group& group) -> absl::Status {
          COHORT_ASSIGN_OR_RETURN(*answer, call(group));
          return absl::OkStatus();
        });
    return Pending(std::move(pending), std::move(answer));
  }

  // Returns the status if the call is over; does not block.
  std::optional<absl::Status> Test() const { return call_.Test(); }
  // Blocks until the call is over; may be called again. DEADLINE_EXCEEDED: the call is not over
  // within the timeout, and goes on.
  absl::StatusOr<T> Wait(absl::Duration timeout = absl::InfiniteDuration()) const {
    COHORT_RETURN_IF_ERROR(call_.Wait(timeout));
    return **answer_;
  }
  // Like PendingCall::Cancel: ends the group, unless the call is over.
  void Cancel() const { call_.Cancel(); }

 private:
  Pending(client::PendingCall call, std::shared_ptr<std::optional<T>> answer)
      : call_(std::move(call)), answer_(std::move(answer)) {}

  client::PendingCall call_;
  std::shared_ptr<std::optional<T>> answer_;  // set before the call is over
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_PENDING_CALL_H_
