#include "client/parallel/moe/rows/packed_rows.h"

#include <cstddef>
#include <cstring>
#include <numeric>

#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace cohort::parallel {

namespace {

// Whether the tensor has these rows and is contiguous, so that no views are needed.
bool HasRows(const Tensor& tensor, int64_t begin, int64_t rows) {
  return tensor.contiguous() && tensor.dims() > 0 && begin >= 0 && rows >= 0 &&
         begin <= tensor.shape()[0] - rows;
}

}  // namespace

int64_t RowBytes(const Tensor& tensor) {
  int64_t bytes = SizeOf(tensor.type());
  for (size_t dim = 1; dim < tensor.shape().size(); ++dim) bytes *= tensor.shape()[dim];
  return bytes;
}

int64_t RowBytes(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += RowBytes(tensor);
  return bytes;
}

int64_t SumOf(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

absl::Status PackRows(absl::Span<const Tensor* const> tensors, int64_t begin, int64_t rows,
                      char* to) {
  for (const Tensor* const tensor : tensors) {
    if (HasRows(*tensor, begin, rows)) {
      const int64_t row = RowBytes(*tensor);
      const auto bytes = static_cast<size_t>(rows * row);
      if (bytes > 0) std::memcpy(to, static_cast<char*>(tensor->data()) + begin * row, bytes);
      to += bytes;
      continue;
    }
    COHORT_ASSIGN_OR_RETURN(const Tensor part, tensor->Narrow(0, begin, rows));
    COHORT_RETURN_IF_ERROR(CopyTensor(part, Tensor(to, part.type(), part.shape())));
    to += part.bytes();
  }
  return absl::OkStatus();
}

absl::Status UnpackRows(const char* from, int64_t begin, int64_t rows,
                        absl::Span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (HasRows(tensor, begin, rows)) {
      const int64_t row = RowBytes(tensor);
      const auto bytes = static_cast<size_t>(rows * row);
      if (bytes > 0) std::memcpy(static_cast<char*>(tensor.data()) + begin * row, from, bytes);
      from += bytes;
      continue;
    }
    COHORT_ASSIGN_OR_RETURN(const Tensor part, tensor.Narrow(0, begin, rows));
    COHORT_RETURN_IF_ERROR(
        CopyTensor(Tensor(const_cast<char*>(from), part.type(), part.shape()), part));
    from += part.bytes();
  }
  return absl::OkStatus();
}

}  // namespace cohort::parallel
