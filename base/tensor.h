// Elements in memory, with a shape: what collectives move.
#ifndef COHORT_BASE_TENSOR_H_
#define COHORT_BASE_TENSOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "base/device.h"

namespace cohort {

// By dimension, the outermost first. Of no dimensions: one element.
using Shape = absl::InlinedVector<int64_t, 6>;

// "[3, 4]"
std::string FormatShape(const Shape& shape);
// How many elements; of a shape with an extent of 0: none. Precondition: that many fit int64_t.
int64_t ElementCount(const Shape& shape);
// Of contiguous elements.
Shape ContiguousStrides(const Shape& shape);
// -n..n-1 to 0..n-1. Errors: INVALID_ARGUMENT (also of a shape of no dimensions).
absl::StatusOr<int> ResolveDim(const Shape& shape, int dim);

// A view of elements, and a share in what keeps them alive; cheap to copy. Copies are of the same
// elements. Not checked: that memory is where `data` and `device` say.
class Tensor {
 public:
  Tensor() = default;  // of no elements: shape [0], u8

  // Contiguous elements: the last dimension's lie next to each other, and so on.
  Tensor(void* data, DataType type, Shape shape, std::shared_ptr<const void> owner = nullptr,
         Device device = {});
  // Any layout; `strides` are in elements, and may be 0 or negative. As many as extents.
  static Tensor Strided(void* data, DataType type, Shape shape, Shape strides,
                        std::shared_ptr<const void> owner = nullptr, Device device = {});
  // Contiguous, in memory of the process, at a multiple of 64 bytes; zeros, or of no defined value.
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
  // Strides that take nobody anywhere, of extents of 1, do not count.
  bool contiguous() const { return contiguous_; }

  // The elements from `begin` on, `size` of them, of dimension `dim`, which is in 0..dims()-1; not
  // copied. Errors: INVALID_ARGUMENT (outside).
  absl::StatusOr<Tensor> Narrow(int dim, int64_t begin, int64_t size) const;
  // The same elements with another shape of as many. Errors: INVALID_ARGUMENT (not as many, a
  // negative extent, or not contiguous).
  absl::StatusOr<Tensor> Reshape(Shape shape) const;
  // Dimension `i` of the result is dimension order[i]; not copied. `order` is a permutation.
  Tensor Permute(const absl::InlinedVector<int, 6>& order) const;

  // Such as: bf16 [3, 4], or, on a GPU: bf16 [3, 4] on cuda:1
  std::string ToString() const;

 private:
  // Of the shape and strides that it has now.
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

// Element by element, whatever the layouts, in as long runs as they have in common; the two do not
// overlap, unless they are the same. Errors: INVALID_ARGUMENT (another type or shape, or memory of
// a GPU).
absl::Status CopyTensor(const Tensor& from, const Tensor& to);
// As it is if it is contiguous, else a contiguous copy in memory of the process. Of the host's.
Tensor Packed(const Tensor& tensor);

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_H_
