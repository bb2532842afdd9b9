#include "worker/group/testing/tensor_model.h"

#include "base/tensor/small_float.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"

namespace cohort::worker {
namespace {

// The bytes at one index of `dim`, and the number of indices of the dimensions before it.
int64_t RowBytes(const TensorModel& model, int dim) {
  int64_t bytes = SizeOf(model.type);
  for (size_t i = static_cast<size_t>(dim) + 1; i < model.shape.size(); ++i) {
    bytes *= model.shape[i];
  }
  return bytes;
}
int64_t Outer(const Shape& shape, int dim) {
  return ElementCount(Shape(shape.begin(), shape.begin() + dim));
}

template <typename T>
void Append(T value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

int64_t Below(std::mt19937& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}

}  // namespace

Shape With(Shape shape, int dim, int64_t extent) {
  shape[static_cast<size_t>(dim)] = extent;
  return shape;
}

TensorModel Slice(const TensorModel& whole, int dim, int64_t begin, int64_t size) {
  TensorModel part = {whole.type, With(whole.shape, dim, size), ""};
  const int64_t row = RowBytes(whole, dim);
  const int64_t extent = whole.shape[static_cast<size_t>(dim)];
  for (int64_t i = 0; i < Outer(whole.shape, dim); ++i) {
    part.bytes += whole.bytes.substr(static_cast<size_t>((i * extent + begin) * row),
                                     static_cast<size_t>(size * row));
  }
  return part;
}

TensorModel Join(const std::vector<TensorModel>& parts, int dim) {
  TensorModel whole = parts[0];
  whole.bytes.clear();
  int64_t extent = 0;
  for (const TensorModel& part : parts) extent += part.shape[static_cast<size_t>(dim)];
  whole.shape = With(whole.shape, dim, extent);
  for (int64_t i = 0; i < Outer(whole.shape, dim); ++i) {
    for (const TensorModel& part : parts) {
      const int64_t bytes = RowBytes(part, dim) * part.shape[static_cast<size_t>(dim)];
      whole.bytes += part.bytes.substr(static_cast<size_t>(i * bytes), static_cast<size_t>(bytes));
    }
  }
  return whole;
}

TensorModel Reduced(const std::vector<TensorModel>& inputs, const Reduction& reduction) {
  TensorModel result = inputs[0];
  std::vector<const void*> from;
  for (const TensorModel& input : inputs) from.push_back(input.bytes.data());
  void* const to = &result.bytes[0];
  worker::Reduce(result.type, reduction, from, absl::MakeConstSpan(&to, 1),
                 ElementCount(result.shape));
  return result;
}

TensorModel RandomModel(DataType type, const Shape& shape, std::mt19937& random) {
  TensorModel model = {type, shape, ""};
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    const float number = static_cast<float>(Below(random, 33) - 16) / 8;
    switch (type) {
      case DataType::kF16:
        Append(F16FromFloat(number), model.bytes);
        break;
      case DataType::kBF16:
        Append(BF16FromFloat(number), model.bytes);
        break;
      case DataType::kF32:
        Append(number / 3, model.bytes);
        break;
      case DataType::kF64:
        Append(double{number} / 3, model.bytes);
        break;
      case DataType::kF8E4M3:
        Append(F8E4M3FromFloat(number), model.bytes);
        break;
      case DataType::kF8E5M2:
        Append(F8E5M2FromFloat(number), model.bytes);
        break;
      default:
        for (int64_t byte = 0; byte < SizeOf(type); ++byte) {
          model.bytes += static_cast<char>(random());
        }
    }
  }
  return model;
}

}  // namespace cohort::worker
