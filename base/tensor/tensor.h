// Tensors: elements in memory, with a type, a shape and strides.
#ifndef COHORT_BASE_TENSOR_TENSOR_H_
#define COHORT_BASE_TENSOR_TENSOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/data_type.h"
#include "base/tensor/device.h"

namespace cohort {

// The extents, the outermost dimension first. A shape without dimensions has one element.
using Shape = absl::InlinedVector<int64_t, 6>;

// "[3, 4]"
std::string FormatShape(const Shape& shape);
// The number of elements. Precondition: it fits int64_t.
int64_t ElementCount(const Shape& shape);
// The bytes of so many elements in a row; nullopt: more than int64_t counts. An extent of 0 counts
// as 1, because code that skips it computes with the others: strides and rows must be countable.
std::optional<int64_t> CountableBytes(DataType type, const Shape& shape);
// The strides of contiguous elements.
Shape ContiguousStrides(const Shape& shape);
// Converts -n..n-1 to 0..n-1. Errors: INVALID_ARGUMENT (out of range, or no dimensions).
absl::StatusOr<int> ResolveDim(const Shape& shape, int dim);

// A view of elements, with a share in their owner, which keeps them alive. Cheap to copy; a copy
// has the same elements. The class does not check `data` and `device`.
class Tensor {
 public:
  Tensor() = default;  // no elements: shape [0], u8

  // Contiguous elements, in row-major order.
  Tensor(void* data, DataType type, Shape shape, std::shared_ptr<const void> owner = nullptr,
         Device device = {});
  // Any layout; `strides` are in elements, one for each dimension, and may be 0 or negative.
  static Tensor Strided(void* data, DataType type, Shape shape, Shape strides,
                        std::shared_ptr<const void> owner = nullptr, Device device = {});
  // Contiguous, in the process's memory, at a multiple of 64 bytes; zeros, or undefined values.
  static Tensor Zeros(DataType type, Shape shape);
  static Tensor Uninitialized(DataType type, Shape shape);

  void* data() const { return data_; }
  DataType type() const { return type_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  int dims() const { return static_cast<int>(shape_.size()); }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count() * SizeOf(type_); }
  // The strides of dimensions with the extent 1 do not count.
  bool contiguous() const { return contiguous_; }

  // A view of the `size` elements from `begin` on along `dim`, which is in 0..dims()-1. Errors:
  // INVALID_ARGUMENT (out of range).
  absl::StatusOr<Tensor> Narrow(int dim, int64_t begin, int64_t size) const;
  // A view of the same elements with another shape. Errors: INVALID_ARGUMENT (another number of
  // elements, a negative extent, or not contiguous).
  absl::StatusOr<Tensor> Reshape(Shape shape) const;
  // A view in which dimension `i` is dimension order[i] of this one. `order` is a permutation.
  Tensor Permute(const absl::InlinedVector<int, 6>& order) const;

  // A text such as: bf16 [3, 4], or, on a GPU: bf16 [3, 4] on cuda:1
  std::string ToString() const;

 private:
  // Computes count_ and contiguous_ from the shape and the strides.
  void Measure();

  void* data_ = nullptr;
  DataType type_ = DataType::kU8;
  Device device_;
  Shape shape_ = {0};
  Shape strides_ = {1};
  int64_t count_ = 0;
  bool contiguous_ = true;
  std::shared_ptr<const void> owner_;
};

// Copies element by element, between any layouts, in the longest runs that the layouts share. The
// tensors do not overlap, unless they are the same. Errors: INVALID_ARGUMENT (another type or
// shape, or GPU memory).
absl::Status CopyTensor(const Tensor& from, const Tensor& to);
// Returns `tensor` if it is contiguous, else a contiguous copy in the process's memory.
// Precondition: `tensor` is in host memory.
Tensor Packed(const Tensor& tensor);

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_TENSOR_H_
