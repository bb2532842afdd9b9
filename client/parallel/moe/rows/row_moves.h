// Moves rows of this rank from one order to another, and tensors between the host and its GPU.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_MOVES_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_MOVES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// Row i of `to` becomes row rows[i] of `from`, on one device. Errors: those of Group::CopyAll.
absl::Status TakeRows(client::Group& group, const Tensor& from, const std::vector<int64_t>& rows,
                      const Tensor& to, const client::CallOptions& call);
// Row rows[i] of `to` becomes row i of `from`; `rows` has no row twice. All other rows become 0.
absl::Status PlaceRows(client::Group& group, const Tensor& from, const std::vector<int64_t>& rows,
                       const Tensor& to, const client::CallOptions& call);

// The same elements, contiguous, on the host: the tensor itself if it is there.
absl::StatusOr<Tensor> OnHost(client::Group& group, const Tensor& tensor,
                              const client::CallOptions& call);
// The same elements on `device`: the tensor itself if it is there.
absl::StatusOr<Tensor> OnDevice(client::Group& group, const Tensor& tensor, Device device,
                                const client::CallOptions& call);
// Where the group moves the numbers that ranks exchange: the host, if the group moves its memory.
Device CommonDevice(const client::Group& group);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_MOVES_H_
