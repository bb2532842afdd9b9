// Rows from every rank to every other, of several tensors at once.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROWS_EXCHANGE_ROWS_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROWS_EXCHANGE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// Like Group::AllToAllV for each tensor. `all_rows` is the number of rows between all ranks:
// tensors that are small on the host by it travel together, as in GatherRows. Errors: those of
// Group, which all ranks get.
absl::StatusOr<std::vector<Tensor>> ExchangeRows(client::Group& group,
                                                 const std::vector<Tensor>& tensors,
                                                 const client::Sizes& to, const client::Sizes& from,
                                                 int64_t all_rows,
                                                 const client::CallDeadline& deadline);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROWS_EXCHANGE_ROWS_H_
