#include "client/parallel/moe/rows/exchange_rows.h"

#include <cstddef>

#include "base/status_macros.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/moe/rows/gather_rows.h"
#include "client/parallel/moe/rows/packed_rows.h"

namespace cohort::parallel {
namespace {

client::Sizes Times(const client::Sizes& sizes, int64_t bytes) {
  client::Sizes result;
  result.reserve(sizes.size());
  for (const int64_t size : sizes) result.push_back(size * bytes);
  return result;
}

absl::Status ExchangePacked(client::Group& group, const std::vector<const Tensor*>& inputs,
                            const std::vector<Tensor>& outputs, const client::Sizes& to,
                            const client::Sizes& from, const client::CallDeadline& deadline) {
  const int64_t row = RowBytes(outputs);
  const absl::StatusOr<Tensor> sent = Allocate(group, DataType::kU8, {SumOf(to) * row});
  const absl::StatusOr<Tensor> came = Allocate(group, DataType::kU8, {SumOf(from) * row});
  if (!sent.ok()) return group.FailCollective(sent.status(), deadline.Left());
  if (!came.ok()) return group.FailCollective(came.status(), deadline.Left());
  auto* block = static_cast<char*>(sent->data());
  int64_t begin = 0;
  for (const int64_t rows : to) {
    const absl::Status packed = PackRows(inputs, begin, rows, block);
    if (!packed.ok()) return group.FailCollective(packed, deadline.Left());
    begin += rows;
    block += rows * row;
  }
  COHORT_RETURN_IF_ERROR(
      group.AllToAllV(*sent, Times(to, row), *came, Times(from, row), deadline.Left()));
  block = static_cast<char*>(came->data());
  begin = 0;
  for (const int64_t rows : from) {
    COHORT_RETURN_IF_ERROR(UnpackRows(block, begin, rows, outputs));
    begin += rows;
    block += rows * row;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> ExchangeRows(client::Group& group,
                                                 const std::vector<Tensor>& tensors,
                                                 const client::Sizes& to, const client::Sizes& from,
                                                 int64_t all_rows,
                                                 const client::CallDeadline& deadline) {
  std::vector<Tensor> outputs;
  std::vector<size_t> alone;
  std::vector<const Tensor*> packed_inputs;
  std::vector<Tensor> packed_outputs;
  for (const Tensor& tensor : tensors) {
    Shape shape = tensor.shape();
    shape[0] = SumOf(from);
    absl::StatusOr<Tensor> output = Allocate(group, tensor.type(), shape, tensor.device());
    if (!output.ok()) return group.FailCollective(output.status(), deadline.Left());
    // Each rank alone counts its own; all rows together may be more than can be counted.
    int64_t all_bytes = 0;
    const bool is_countable = !__builtin_mul_overflow(all_rows, RowBytes(tensor), &all_bytes);
    if (tensor.device().is_host() && is_countable && all_bytes <= kPackedBytes) {
      packed_inputs.push_back(&tensor);
      packed_outputs.push_back(*output);
    } else {
      alone.push_back(outputs.size());
    }
    outputs.push_back(*std::move(output));
  }
  if (!packed_inputs.empty()) {
    COHORT_RETURN_IF_ERROR(
        ExchangePacked(group, packed_inputs, packed_outputs, to, from, deadline));
  }
  for (const size_t at : alone) {
    COHORT_RETURN_IF_ERROR(group.AllToAllV(tensors[at], to, outputs[at], from, deadline.Left()));
  }
  return outputs;
}

}  // namespace cohort::parallel
