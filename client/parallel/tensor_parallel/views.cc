#include "client/parallel/tensor_parallel/views.h"

#include <utility>

namespace cohort::parallel {
namespace {

// Precondition: the range is within the dimension.
Tensor Within(const Tensor& tensor, int dim, int64_t begin, int64_t size) {
  return *tensor.Narrow(dim, begin, size);
}

class Range {
 public:
  explicit Range(const Tensor& to) : to_(to) {}

  // Precondition: the dimensions of `from` before `dim` have extents of 1.
  void Add(const Tensor& from, int dim, int64_t begin, int64_t end) {
    if (begin >= end) return;
    if (begin == 0 && end == from.count()) return AddBox(from);
    const int64_t inner = from.count() / from.shape()[static_cast<size_t>(dim)];
    const int64_t first = begin / inner;
    const int64_t last = end / inner;
    if (first == last) {
      return Add(Within(from, dim, first, 1), dim + 1, begin - first * inner, end - first * inner);
    }
    // The rest of the first slice, the whole slices, and the beginning of the last.
    const int64_t whole = (begin + inner - 1) / inner;
    if (whole > first) Add(Within(from, dim, first, 1), dim + 1, begin - first * inner, inner);
    if (last > whole) AddBox(Within(from, dim, whole, last - whole));
    if (end > last * inner) Add(Within(from, dim, last, 1), dim + 1, 0, end - last * inner);
  }
  std::vector<client::TensorCopy> Take() { return std::move(copies_); }

 private:
  void AddBox(const Tensor& box) {
    const Tensor part = Within(to_, 0, done_, box.count());
    copies_.push_back({box, *part.Reshape(box.shape())});
    done_ += box.count();
  }

  const Tensor& to_;
  int64_t done_ = 0;
  std::vector<client::TensorCopy> copies_;
};

}  // namespace

Tensor Unsqueezed(const Tensor& tensor) {
  Shape shape = tensor.shape();
  Shape strides = tensor.strides();
  shape.insert(shape.begin(), 1);
  strides.insert(strides.begin(), 0);
  return Tensor::Strided(tensor.data(), tensor.type(), std::move(shape), std::move(strides),
                         tensor.owner(), tensor.device());
}

Tensor WithDimSplit(const Tensor& tensor, int dim, int64_t outer, int64_t inner) {
  Shape shape = tensor.shape();
  Shape strides = tensor.strides();
  const auto at = static_cast<size_t>(dim);
  const int64_t stride = strides[at];
  shape[at] = inner;
  shape.insert(shape.begin() + dim, outer);
  strides.insert(strides.begin() + dim, inner * stride);
  return Tensor::Strided(tensor.data(), tensor.type(), std::move(shape), std::move(strides),
                         tensor.owner(), tensor.device());
}

std::optional<Tensor> WithRowsMerged(const Tensor& tensor) {
  if (tensor.dims() == 0) return std::nullopt;
  const int64_t columns = tensor.shape().back();
  int64_t rows = 1;
  int64_t stride = columns;  // of a row, where there is but one
  const bool is_empty = tensor.count() == 0;
  for (int i = tensor.dims() - 2; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    const int64_t extent = tensor.shape()[at];
    if (extent != 1) {
      if (rows == 1) {
        stride = tensor.strides()[at];
      } else if (!is_empty && tensor.strides()[at] != rows * stride) {
        return std::nullopt;
      }
    }
    rows *= extent;
  }
  return Tensor::Strided(tensor.data(), tensor.type(), {rows, columns},
                         {stride, tensor.strides().back()}, tensor.owner(), tensor.device());
}

std::vector<client::TensorCopy> CopiesOfRange(const Tensor& from, int64_t begin, int64_t end,
                                              const Tensor& to) {
  Range range(to);
  range.Add(from, 0, begin, end);
  return range.Take();
}

}  // namespace cohort::parallel
