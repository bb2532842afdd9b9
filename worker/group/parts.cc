#include "worker/group/parts.h"

#include "absl/functional/function_ref.h"

namespace cohort::worker {
namespace {

// Of each part: the elements in the tensor, and their place in flat memory.
void ForEachPart(const Tensor& tensor, int dim, absl::Span<const int64_t> sizes, int64_t pitch,
                 char* flat, absl::FunctionRef<void(const Tensor&, const Tensor&)> body) {
  if (tensor.count() == 0) return;
  const int64_t row = RowCount(tensor.shape(), dim);
  int64_t begin = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] == 0) continue;
    const Tensor part = tensor.Narrow(dim, begin, sizes[rank]).value();
    const int64_t at = pitch == 0 ? begin * row : static_cast<int64_t>(rank) * pitch;
    body(part, Tensor(flat + at * SizeOf(tensor.type()), tensor.type(), part.shape()));
    begin += sizes[rank];
  }
}

}  // namespace

bool HasFlatParts(const Tensor& tensor, int dim) {
  if (!tensor.contiguous()) return false;
  for (int i = 0; i < dim; ++i) {
    if (tensor.shape()[static_cast<size_t>(i)] > 1) return tensor.count() == 0;
  }
  return true;
}

const Tensor& EqualParts(const Tensor& tensor, int dim, int parts, Tensor* room) {
  if (HasFlatParts(tensor, dim)) return tensor;
  Shape shape = tensor.shape();
  Shape strides = tensor.strides();
  const auto at = static_cast<size_t>(dim);
  shape[at] /= parts;
  shape.insert(shape.begin(), parts);
  strides.insert(strides.begin(), shape[at + 1] * strides[at]);
  *room = Tensor::Strided(tensor.data(), tensor.type(), shape, strides);
  return *room;
}

// Both are of the same type and shape, so that copying cannot fail.
void PackParts(const Tensor& tensor, int dim, absl::Span<const int64_t> sizes, int64_t pitch,
               char* flat) {
  ForEachPart(tensor, dim, sizes, pitch, flat, [](const Tensor& part, const Tensor& place) {
    CopyTensor(part, place).IgnoreError();
  });
}

void UnpackParts(const char* flat, int64_t pitch, const Tensor& tensor, int dim,
                 absl::Span<const int64_t> sizes) {
  ForEachPart(
      tensor, dim, sizes, pitch, const_cast<char*>(flat),
      [](const Tensor& part, const Tensor& place) { CopyTensor(place, part).IgnoreError(); });
}

int64_t RowCount(absl::Span<const int64_t> shape, int dim) {
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int>(i) != dim) count *= shape[i];
  }
  return count;
}

}  // namespace cohort::worker
