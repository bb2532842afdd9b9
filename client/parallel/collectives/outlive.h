// Keeps the temporary GPU memory of a collective alive until the stream has passed it.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_OUTLIVE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_OUTLIVE_H_

#include "absl/status/status.h"
#include "base/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// `temporary` was copied to on the stream of `call`. Then a collective on that stream used it and
// returned `verb`. Blocks until the stream has passed both, so that the caller may free it. Does
// nothing without a stream or on the host. Returns `verb`, or why the wait failed.
inline absl::Status Outlive(client::Group& group, const Tensor& temporary, const absl::Status& verb,
                            const client::CallOptions& call) {
  if (!call.stream.has_value() || temporary.device().is_host() || temporary.count() == 0) {
    return verb;
  }
  if (verb.ok()) {
    client::CallOptions left;
    left.timeout = call.timeout;
    return group.AwaitStreams(left);
  }
  // The group has no work after the copy that could be waited for. A copy to memory that no device
  // knows returns when it is done, and the stream's earlier work is then done, too.
  const Tensor first(temporary.data(), temporary.type(), {1}, temporary.owner(),
                     temporary.device());
  group.Copy(first, Tensor::Uninitialized(temporary.type(), {1}), call).IgnoreError();
  return verb;
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_OUTLIVE_H_
