#include "client/parallel/moe/rows/row_moves.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/status_macros.h"
#include "client/parallel/moe/rows/packed_rows.h"

namespace cohort::parallel {
namespace {

using client::TensorCopy;

// Calls body(i, row, count) for runs of consecutive rows: rows[i] is `row`, rows[i + 1] the next.
template <typename Body>
absl::Status ForEachRun(const std::vector<int64_t>& rows, const Body& body) {
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    COHORT_RETURN_IF_ERROR(body(static_cast<int64_t>(i), rows[i], static_cast<int64_t>(end - i)));
    i = end;
  }
  return absl::OkStatus();
}

absl::Status AddCopy(const Tensor& from, int64_t from_row, const Tensor& to, int64_t to_row,
                     int64_t count, std::vector<TensorCopy>& copies) {
  COHORT_ASSIGN_OR_RETURN(Tensor source, from.Narrow(0, from_row, count));
  COHORT_ASSIGN_OR_RETURN(Tensor target, to.Narrow(0, to_row, count));
  copies.push_back({std::move(source), std::move(target)});
  return absl::OkStatus();
}

// Doubles the rows of zeros with each copy, beginning with one row: a device has few copies to do.
absl::Status Clear(client::Group& group, const Tensor& tensor, const client::CallOptions& call) {
  if (tensor.count() == 0) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const Tensor first, tensor.Narrow(0, 0, 1));
  COHORT_RETURN_IF_ERROR(group.Copy(Tensor::Zeros(first.type(), first.shape()), first, call));
  const int64_t rows = tensor.shape()[0];
  for (int64_t done = 1; done < rows; done *= 2) {
    const int64_t count = std::min(done, rows - done);
    COHORT_ASSIGN_OR_RETURN(const Tensor from, tensor.Narrow(0, 0, count));
    COHORT_ASSIGN_OR_RETURN(const Tensor to, tensor.Narrow(0, done, count));
    COHORT_RETURN_IF_ERROR(group.Copy(from, to, call));
  }
  return absl::OkStatus();
}

// Whether each row's elements are contiguous.
bool HasFlatRows(const Tensor& tensor) {
  if (tensor.dims() < 2) return true;
  Shape shape = tensor.shape();
  shape[0] = 1;
  return Tensor::Strided(tensor.data(), tensor.type(), std::move(shape), tensor.strides())
      .contiguous();
}

}  // namespace

absl::Status TakeRows(client::Group& group, const Tensor& from, const std::vector<int64_t>& rows,
                      const Tensor& to, const client::CallOptions& call) {
  if (to.count() == 0) return absl::OkStatus();
  if (to.device().is_host() && HasFlatRows(from) && to.contiguous()) {
    const int64_t bytes = RowBytes(to);
    const int64_t step = from.strides()[0] * SizeOf(from.type());
    const auto* const in = static_cast<const char*>(from.data());
    auto* out = static_cast<char*>(to.data());
    for (const int64_t row : rows) {
      std::memcpy(out, in + row * step, static_cast<size_t>(bytes));
      out += bytes;
    }
    return absl::OkStatus();
  }
  std::vector<TensorCopy> copies;
  COHORT_RETURN_IF_ERROR(ForEachRun(rows, [&](int64_t i, int64_t row, int64_t count) {
    return AddCopy(from, row, to, i, count, copies);
  }));
  return group.CopyAll(copies, call);
}

absl::Status PlaceRows(client::Group& group, const Tensor& from, const std::vector<int64_t>& rows,
                       const Tensor& to, const client::CallOptions& call) {
  COHORT_RETURN_IF_ERROR(Clear(group, to, call));
  if (from.count() == 0) return absl::OkStatus();
  std::vector<TensorCopy> copies;
  COHORT_RETURN_IF_ERROR(ForEachRun(rows, [&](int64_t i, int64_t row, int64_t count) {
    return AddCopy(from, i, to, row, count, copies);
  }));
  return group.CopyAll(copies, call);
}

absl::StatusOr<Tensor> OnHost(client::Group& group, const Tensor& tensor,
                              const client::CallOptions& call) {
  if (tensor.device().is_host()) return Packed(tensor);
  Tensor host = Tensor::Uninitialized(tensor.type(), tensor.shape());
  COHORT_RETURN_IF_ERROR(group.Copy(tensor, host, call));
  return host;
}

absl::StatusOr<Tensor> OnDevice(client::Group& group, const Tensor& tensor, Device device,
                                const client::CallOptions& call) {
  if (tensor.device() == device) return tensor;
  COHORT_ASSIGN_OR_RETURN(Tensor there, group.Allocate(tensor.type(), tensor.shape(), device));
  COHORT_RETURN_IF_ERROR(group.Copy(tensor, there, call));
  return there;
}

Device CommonDevice(const client::Group& group) {
  return group.placement() == Placement::kDevice ? group.device() : Device::Host();
}

}  // namespace cohort::parallel
