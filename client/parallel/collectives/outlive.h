// Memory of a verb's own on a GPU, which lives until the stream is through with it.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_OUTLIVE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_OUTLIVE_H_

#include "absl/status/status.h"
#include "base/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// `temporary` was copied to on the stream of `call`, and then given to a verb there that returned
// `verb`. Blocks until the stream has passed both: what follows may free it. Nothing to do, and to
// wait for, without a stream or on the host. Returns `verb`, or why the wait failed.
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
  // No work of the group is behind the copy that could be waited for. One to memory that no device
  // knows is through when it returns, and so is what is before it on the stream.
  const Tensor first(temporary.data(), temporary.type(), {1}, temporary.owner(),
                     temporary.device());
  group.Copy(first, Tensor::Uninitialized(temporary.type(), {1}), call).IgnoreError();
  return verb;
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_OUTLIVE_H_
