// Keeps the temporary GPU memory of a collective alive until the stream has passed it.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_KEEP_ALIVE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_KEEP_ALIVE_H_

#include "absl/status/status.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// `temporary` was copied to on the stream of `call`. Then a collective on that stream used it and
// returned `result`. Blocks until the stream has passed both, so that the caller may free it. Does
// nothing without a stream or on the host. Returns `result`, or why the wait failed.
inline absl::Status AwaitLastUse(client::Group& group, const Tensor& temporary,
                                 const absl::Status& result, const client::CallOptions& call) {
  if (!call.stream.has_value() || temporary.device().is_host() || temporary.count() == 0) {
    return result;
  }
  if (result.ok()) {
    client::CallOptions left;
    left.timeout = call.timeout;
    return group.AwaitStreams(left);
  }
  // The group has no work after the copy that could be waited for. A copy to memory that no device
  // knows returns when it is done, and the stream's earlier work is then done, too.
  const Tensor first(temporary.data(), temporary.type(), {1}, temporary.owner(),
                     temporary.device());
  group.Copy(first, Tensor::Uninitialized(temporary.type(), {1}), call).IgnoreError();
  return result;
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_KEEP_ALIVE_H_
