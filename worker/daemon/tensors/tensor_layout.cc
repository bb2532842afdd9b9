#include "worker/daemon/tensors/tensor_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/collective/reduction.h"

namespace cohort::worker {
namespace {

constexpr int kMaxDims = 16;
constexpr int64_t kMaxBytes = int64_t{1} << 62;

// Clients in other languages take these numbers from worker.proto.
static_assert(static_cast<int>(DataType::kBool) == v1::DATA_TYPE_BOOL &&
              static_cast<int>(DataType::kU64) == v1::DATA_TYPE_U64 &&
              static_cast<int>(DataType::kBF16) == v1::DATA_TYPE_BF16 &&
              static_cast<int>(DataType::kF32) == v1::DATA_TYPE_F32 &&
              static_cast<int>(DataType::kF8E5M2) == v1::DATA_TYPE_F8_E5M2 &&
              static_cast<int>(DataType::kC128) == v1::DATA_TYPE_C128);
static_assert(static_cast<int>(kDataTypes.back()) == v1::DataType_MAX);
static_assert(static_cast<int>(ReduceOp::kSum) == v1::REDUCE_OP_SUM &&
              static_cast<int>(ReduceOp::kAvg) == v1::REDUCE_OP_AVG &&
              static_cast<int>(ReduceOp::kBitXor) == v1::REDUCE_OP_BIT_XOR);
static_assert(static_cast<int>(kReduceOps.back()) == v1::ReduceOp_MAX);

// Shapes have at most kMaxDims extents: ReadLayout checks that before it prints one.
std::string Format(const Shape& shape) { return FormatShape(shape); }

absl::Status Invalid(const TensorLayout& layout, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("a tensor of ", NameOf(layout.type), " ", Format(layout.shape), ": ", why));
}

}  // namespace

absl::StatusOr<TensorLayout> ReadLayout(const v1::TensorLayout& layout) {
  if (!IsDataType(layout.data_type())) {
    return absl::InvalidArgumentError(
        absl::StrCat(layout.data_type(), " is not the number of a data type"));
  }
  if (layout.shape_size() > kMaxDims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a tensor of ", layout.shape_size(), " dimensions; at most ", kMaxDims, " are allowed"));
  }
  TensorLayout result;
  result.type = static_cast<DataType>(layout.data_type());
  result.shape.assign(layout.shape().begin(), layout.shape().end());
  bool empty = false;
  for (const int64_t extent : result.shape) {
    if (extent < 0) return Invalid(result, "an extent is negative");
    empty = empty || extent == 0;
  }
  const int64_t element = SizeOf(result.type);
  int64_t bytes = element;
  for (const int64_t extent : result.shape) {
    // Multiplies the other extents even if one is 0: strides are products of them.
    if (extent > 1 && __builtin_mul_overflow(bytes, extent, &bytes)) bytes = kMaxBytes + 1;
    if (bytes > kMaxBytes) {
      return Invalid(result, absl::StrCat("it has more than ", kMaxBytes, " bytes"));
    }
  }
  result.bytes = empty ? 0 : bytes;
  if (layout.strides_size() == 0) {
    result.strides = ContiguousStrides(result.shape);
  } else if (layout.strides_size() != layout.shape_size()) {
    return Invalid(result, absl::StrCat(layout.strides_size(), " strides for ", layout.shape_size(),
                                        " dimensions"));
  } else {
    result.strides.assign(layout.strides().begin(), layout.strides().end());
  }
  result.contiguous =
      Tensor::Strided(nullptr, result.type, result.shape, result.strides).contiguous();
  if (empty) return result;
  result.highest = 0;
  for (size_t i = 0; i < result.shape.size(); ++i) {
    int64_t reach = 0;
    int64_t& end = result.strides[i] < 0 ? result.lowest : result.highest;
    if (__builtin_mul_overflow(result.shape[i] - 1, result.strides[i], &reach) ||
        __builtin_add_overflow(end, reach, &end) || end > kMaxBytes || end < -kMaxBytes) {
      return Invalid(result, absl::StrCat("its strides span more than ", kMaxBytes, " elements"));
    }
  }
  return result;
}

absl::StatusOr<Tensor> ViewOf(char* memory, int64_t bytes, const TensorLayout& layout,
                              int64_t first, std::shared_ptr<const void> owner) {
  const int64_t element = SizeOf(layout.type);
  const int64_t capacity = bytes / element;
  if (first < 0 || first > capacity) {
    return Invalid(layout,
                   absl::StrCat("it begins at element ", first, " of memory of ", bytes, " bytes"));
  }
  if (layout.bytes > 0 && (first + layout.lowest < 0 || layout.highest >= capacity - first)) {
    return Invalid(layout, absl::StrCat("from element ", first, " on, it does not lie within ",
                                        "memory of ", bytes, " bytes"));
  }
  return Tensor::Strided(memory + first * element, layout.type, layout.shape, layout.strides,
                         std::move(owner));
}

}  // namespace cohort::worker
