#include "base/tensor/tensor.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort {
namespace {

constexpr std::align_val_t kAlignment{64};

bool IsContiguous(const Shape& shape, const Shape& strides) {
  uint64_t expected = 1;  // may wrap before an extent of 0 comes
  bool contiguous = true;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    contiguous = contiguous && (shape[i] == 1 || static_cast<uint64_t>(strides[i]) == expected);
    expected *= static_cast<uint64_t>(shape[i]);
  }
  return contiguous;
}

}  // namespace

std::string FormatShape(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

int64_t ElementCount(const Shape& shape) {
  uint64_t count = 1;  // may wrap before an extent of 0 comes
  for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
  return static_cast<int64_t>(count);
}

std::optional<int64_t> CountableBytes(DataType type, const Shape& shape) {
  int64_t bytes = SizeOf(type);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) return std::nullopt;
  }
  return bytes;
}

Shape ContiguousStrides(const Shape& shape) {
  Shape strides(shape.size());
  uint64_t stride = 1;  // may wrap where an extent of 0 is
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(stride);
    if (shape[i] > 1) stride *= static_cast<uint64_t>(shape[i]);
  }
  return strides;
}

absl::StatusOr<int> ResolveDim(const Shape& shape, int dim) {
  const int dims = static_cast<int>(shape.size());
  if (dim >= -dims && dim < dims) return dim < 0 ? dim + dims : dim;
  if (dims == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no dimension ", dim, ": the shape is [], of a single element"));
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no dimension ", dim, ": the shape is ",
                                                 FormatShape(shape), ", of dimensions ", -dims,
                                                 "..", dims - 1));
}

Tensor::Tensor(void* data, DataType type, Shape shape, std::shared_ptr<const void> owner,
               Device device)
    : data_(data),
      type_(type),
      device_(device),
      shape_(std::move(shape)),
      strides_(ContiguousStrides(shape_)),
      count_(ElementCount(shape_)),
      owner_(std::move(owner)) {}

Tensor Tensor::Strided(void* data, DataType type, Shape shape, Shape strides,
                       std::shared_ptr<const void> owner, Device device) {
  assert(shape.size() == strides.size());
  Tensor tensor;
  tensor.data_ = data;
  tensor.type_ = type;
  tensor.device_ = device;
  tensor.shape_ = std::move(shape);
  tensor.strides_ = std::move(strides);
  tensor.owner_ = std::move(owner);
  tensor.Measure();
  return tensor;
}

Tensor Tensor::Uninitialized(DataType type, Shape shape) {
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  void* const data = ::operator new(bytes, kAlignment);
  std::shared_ptr<const void> owner(
      data, [](const void* memory) { ::operator delete(const_cast<void*>(memory), kAlignment); });
  return Tensor(data, type, std::move(shape), std::move(owner));
}

Tensor Tensor::Zeros(DataType type, Shape shape) {
  Tensor tensor = Uninitialized(type, std::move(shape));
  std::memset(tensor.data_, 0, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

void Tensor::Measure() {
  count_ = ElementCount(shape_);
  contiguous_ = IsContiguous(shape_, strides_);
}

absl::StatusOr<Tensor> Tensor::Narrow(int dim, int64_t begin, int64_t size) const {
  if (dim < 0 || dim >= dims()) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(), " has no dimension ", dim));
  }
  const auto at = static_cast<size_t>(dim);
  if (begin < 0 || size < 0 || begin > shape_[at] || size > shape_[at] - begin) {
    return absl::InvalidArgumentError(absl::StrCat(
        size, " elements from ", begin, " on of dimension ", dim, " are not within ", ToString()));
  }
  Tensor part = *this;
  part.shape_[at] = size;
  part.Measure();
  // Where there is no element, there may be no memory either.
  if (part.count() > 0) {
    part.data_ = static_cast<char*>(data_) + begin * strides_[at] * SizeOf(type_);
  }
  return part;
}

absl::StatusOr<Tensor> Tensor::Reshape(Shape shape) const {
  bool fits = true;
  for (const int64_t extent : shape) fits = fits && extent >= 0;
  if (!fits || ElementCount(shape) != count()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(), " cannot have the shape ", FormatShape(shape)));
  }
  if (!contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(), " is not contiguous: it cannot have another shape"));
  }
  return Tensor(data_, type_, std::move(shape), owner_, device_);
}

Tensor Tensor::Permute(const absl::InlinedVector<int, 6>& order) const {
  assert(order.size() == shape_.size());
  Tensor result = *this;
  for (size_t i = 0; i < order.size(); ++i) {
    result.shape_[i] = shape_[static_cast<size_t>(order[i])];
    result.strides_[i] = strides_[static_cast<size_t>(order[i])];
  }
  result.Measure();
  return result;
}

std::string Tensor::ToString() const {
  return absl::StrCat(NameOf(type_), " ", FormatShape(shape_), device_.is_host() ? "" : " on ",
                      device_.is_host() ? "" : device_.ToString());
}

Tensor Packed(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor;
  Tensor packed = Tensor::Uninitialized(tensor.type(), tensor.shape());
  // Type and shape are the same, so that the copy cannot fail.
  CopyTensor(tensor, packed).IgnoreError();
  return packed;
}

}  // namespace cohort
