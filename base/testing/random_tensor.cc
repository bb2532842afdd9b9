#include "base/testing/random_tensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace cohort {
namespace {

constexpr char kUntouched = '\xAA';

// Calls visit(address) for each element in order.
void ForEach(const Tensor& tensor, absl::FunctionRef<void(char*)> visit) {
  Shape at(tensor.shape().size(), 0);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * tensor.strides()[axis];
    visit(static_cast<char*>(tensor.data()) + offset * SizeOf(tensor.type()));
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < tensor.shape()[axis]) break;
      at[axis] = 0;
    }
  }
}

}  // namespace

RandomTensor::RandomTensor(DataType type, const Shape& shape, std::mt19937& random,
                           const Allocator& allocate) {
  Shape strides = ContiguousStrides(shape);
  int64_t first = 0;
  int64_t room = ElementCount(shape);
  if (random() % 3 != 0) {
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t stride = 1;
    for (const size_t at : order) {
      if (random() % 4 == 0) stride *= 2;  // every second
      strides[at] = stride;
      stride *= std::max<int64_t>(shape[at], 1) + (random() % 3 == 0 ? 1 : 0);  // narrowed
      if (random() % 4 == 0 && shape[at] > 0) {
        first += strides[at] * (shape[at] - 1);
        strides[at] = -strides[at];
      }
    }
    room = stride + 1;
  }
  memory_ = allocate(DataType::kU8, {room * SizeOf(type)});
  if (memory_.count() > 0) {
    std::memset(memory_.data(), kUntouched, static_cast<size_t>(memory_.bytes()));
  }
  tensor_ = Tensor::Strided(static_cast<char*>(memory_.data()) + first * SizeOf(type), type, shape,
                            std::move(strides));
}

bool RandomTensor::Strayed() const {
  const std::string elements = ElementsOf(tensor_);
  const auto size = static_cast<size_t>(SizeOf(tensor_.type()));
  ForEach(tensor_, [&](char* element) { std::memset(element, kUntouched, size); });
  const auto* const begin = static_cast<const char*>(memory_.data());
  const bool strayed =
      std::any_of(begin, begin + memory_.count(), [](char byte) { return byte != kUntouched; });
  SetElements(tensor_, elements);
  return strayed;
}

std::string ElementsOf(const Tensor& tensor) {
  std::string elements;
  ForEach(tensor, [&](const char* element) {
    elements.append(element, static_cast<size_t>(SizeOf(tensor.type())));
  });
  return elements;
}

void SetElements(const Tensor& tensor, absl::string_view elements) {
  const auto size = static_cast<size_t>(SizeOf(tensor.type()));
  ForEach(tensor, [&](char* element) {
    std::memcpy(element, elements.data(), size);
    elements.remove_prefix(size);
  });
}

}  // namespace cohort
