#include "worker/group/collectives/tensor_parts.h"

#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// Calls body(elements in the tensor, their copy in flat memory) for each part that is not empty.
absl::Status ForEachPart(const Tensor& tensor, int dim, absl::Span<const int64_t> sizes,
                         int64_t pitch, char* flat, CopyPart body) {
  if (tensor.count() == 0) return absl::OkStatus();
  const int64_t row = RowCount(tensor.shape(), dim);
  int64_t begin = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] == 0) continue;
    const Tensor part = tensor.Narrow(dim, begin, sizes[rank]).value();
    const int64_t at = pitch == 0 ? begin * row : static_cast<int64_t>(rank) * pitch;
    const Tensor flat_part(flat + at * SizeOf(tensor.type()), tensor.type(), part.shape(), nullptr,
                           tensor.device());
    COHORT_RETURN_IF_ERROR(body(part, flat_part));
    begin += sizes[rank];
  }
  return absl::OkStatus();
}

}  // namespace

bool HasFlatParts(const Tensor& tensor, int dim) {
  if (!tensor.contiguous()) return false;
  for (int i = 0; i < dim; ++i) {
    if (tensor.shape()[static_cast<size_t>(i)] > 1) return tensor.count() == 0;
  }
  return true;
}

bool HasRepeats(const Tensor& tensor) {
  if (tensor.contiguous()) return false;
  for (size_t i = 0; i < tensor.shape().size(); ++i) {
    if (tensor.strides()[i] == 0 && tensor.shape()[i] > 1) return tensor.count() > 0;
  }
  return false;
}

const Tensor& EqualParts(const Tensor& tensor, int dim, int parts, std::optional<Tensor>& room) {
  if (HasFlatParts(tensor, dim)) return tensor;
  Shape shape = tensor.shape();
  Shape strides = tensor.strides();
  const auto at = static_cast<size_t>(dim);
  shape[at] /= parts;
  shape.insert(shape.begin(), parts);
  strides.insert(strides.begin(), shape[at + 1] * strides[at]);
  room = Tensor::Strided(tensor.data(), tensor.type(), shape, strides, nullptr, tensor.device());
  return *room;
}

absl::Status PackParts(const Tensor& tensor, int dim, absl::Span<const int64_t> sizes,
                       int64_t pitch, char* flat, CopyPart copy) {
  return ForEachPart(tensor, dim, sizes, pitch, flat, copy);
}

absl::Status UnpackParts(const char* flat, int64_t pitch, const Tensor& tensor, int dim,
                         absl::Span<const int64_t> sizes, CopyPart copy) {
  return ForEachPart(
      tensor, dim, sizes, pitch, const_cast<char*>(flat),
      [&](const Tensor& part, const Tensor& flat_part) { return copy(flat_part, part); });
}

int64_t RowCount(absl::Span<const int64_t> shape, int dim) {
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int>(i) != dim) count *= shape[i];
  }
  return count;
}

}  // namespace cohort::worker
