#include "client/parallel/moe/packed_rows.h"

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace cohort::parallel {

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

absl::Status PackRows(const std::vector<Tensor>& tensors, int64_t begin, int64_t rows, char* to) {
  for (const Tensor& tensor : tensors) {
    COHORT_ASSIGN_OR_RETURN(const Tensor part, tensor.Narrow(0, begin, rows));
    COHORT_RETURN_IF_ERROR(CopyTensor(part, Tensor(to, part.type(), part.shape())));
    to += part.bytes();
  }
  return absl::OkStatus();
}

absl::Status UnpackRows(const char* from, int64_t begin, int64_t rows,
                        const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    COHORT_ASSIGN_OR_RETURN(const Tensor part, tensor.Narrow(0, begin, rows));
    COHORT_RETURN_IF_ERROR(
        CopyTensor(Tensor(const_cast<char*>(from), part.type(), part.shape()), part));
    from += part.bytes();
  }
  return absl::OkStatus();
}

}  // namespace cohort::parallel
