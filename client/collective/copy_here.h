// Group::CopyAll, for all forms of a group: on the host by this process, else by the rank's GPU.
#ifndef COHORT_CLIENT_COLLECTIVE_COPY_HERE_H_
#define COHORT_CLIENT_COLLECTIVE_COPY_HERE_H_

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"

namespace cohort::client {

// `gpu` has device() and Copy(copies, stream, timeout); null: there is no GPU.
template <typename AnyGpu>
absl::Status CopyHere(AnyGpu* gpu, absl::Span<const TensorCopy> copies, const CallOptions& options,
                      absl::Duration timeout) {
  const auto is_host = [](const TensorCopy& copy) {
    return copy.from.device().is_host() && copy.to.device().is_host();
  };
  if (!options.stream.has_value() && std::all_of(copies.begin(), copies.end(), is_host)) {
    for (const TensorCopy& copy : copies) COHORT_RETURN_IF_ERROR(CopyTensor(copy.from, copy.to));
    return absl::OkStatus();
  }
  for (const TensorCopy& copy : copies) {
    for (const Device device : {copy.from.device(), copy.to.device()}) {
      if (device.is_host() || (gpu != nullptr && device == gpu->device())) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "a copy of ", copy.from.ToString(), " to ", copy.to.ToString(), ": this rank's GPU is ",
          gpu == nullptr ? "none" : gpu->device().ToString()));
    }
  }
  if (gpu == nullptr) {
    return absl::InvalidArgumentError(
        "a stream is for tensors on GPUs: this group moves memory of the host");
  }
  return gpu->Copy(copies, options.stream, timeout);
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_COPY_HERE_H_
