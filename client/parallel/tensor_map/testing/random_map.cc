#include "client/parallel/tensor_map/testing/random_map.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/testing/random_tensor.h"

namespace cohort::parallel {
namespace {

std::string RandomText(std::mt19937& random) {
  // Some keys have characters that other formats use as separators.
  constexpr absl::string_view kAlphabet("ab%./\0\n\xFF'", 9);
  std::string text;
  for (size_t left = random() % 7; left > 0; --left) {
    text.push_back(kAlphabet[random() % kAlphabet.size()]);
  }
  return text;
}

int64_t RandomInt(std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return std::numeric_limits<int64_t>::min();
    case 1:
      return std::numeric_limits<int64_t>::max();
    default:
      return static_cast<int64_t>(random() % 1000) - 500;
  }
}

Value RandomValue(std::mt19937& random, int depth, const std::function<Tensor()>& tensor) {
  switch (random() % 10) {
    case 0:
      return Value();
    case 1:
      return random() % 2 == 0;
    case 2:
      return RandomInt(random);
    case 3:
      return random() / 7.0;
    case 4:
      return RandomText(random);
    case 5:
      return Bytes{RandomText(random)};
    case 6: {
      List list;
      for (size_t left = depth > 0 ? random() % 4 : 0; left > 0; --left) {
        list.push_back(RandomValue(random, depth - 1, tensor));
      }
      return list;
    }
    case 7:
      return depth > 0 ? RandomMap(random, depth - 1, tensor) : TensorMap();
    default:
      return tensor == nullptr ? Value() : Value(tensor());
  }
}

}  // namespace

Tensor RandomHostTensor(std::mt19937& random) {
  const DataType type = kDataTypes[random() % kDataTypes.size()];
  Shape shape;
  const size_t dims = random() % 4;
  const uint32_t largest = random() % 4 == 0 ? 20 : 5;
  for (size_t i = 0; i < dims; ++i) {
    shape.push_back(static_cast<int64_t>(random() % 8 == 0 ? 0 : random() % largest + 1));
  }
  const auto made = std::make_shared<RandomTensor>(type, shape, random);
  const Tensor& view = made->tensor();
  Tensor tensor = Tensor::Strided(view.data(), type, shape, view.strides(), made);
  std::string elements(static_cast<size_t>(tensor.bytes()), '\0');
  for (char& byte : elements) byte = static_cast<char>(random() % 2);
  SetElements(tensor, elements);
  return tensor;
}

TensorMap RandomMap(std::mt19937& random, int depth, const std::function<Tensor()>& tensor) {
  TensorMap map;
  // Now and then so many entries that the index finds them.
  for (size_t left = random() % 16 == 0 ? 40 : random() % 6; left > 0; --left) {
    map.Set(RandomText(random), RandomValue(random, depth, tensor));
  }
  return map;
}

std::string Describe(const TensorMap& map, const std::function<Tensor(const Tensor&)>& host) {
  std::string text = "{";
  for (const TensorMap::Entry& entry : map) {
    absl::StrAppend(&text, "'", absl::CHexEscape(entry.key), "': ", Describe(entry.value, host),
                    ",\n");
  }
  return text + "}";
}

std::string Describe(const Value& value, const std::function<Tensor(const Tensor&)>& host) {
  switch (value.kind()) {
    case ValueKind::kNull:
      return "null";
    case ValueKind::kBool:
      return *value.As<bool>() ? "true" : "false";
    case ValueKind::kInt:
      return absl::StrCat(*value.As<int64_t>());
    case ValueKind::kDouble:
      return absl::StrFormat("%a", *value.As<double>());
    case ValueKind::kText:
      return absl::StrCat("'", absl::CHexEscape(*value.As<std::string>()), "'");
    case ValueKind::kBytes:
      return absl::StrCat("x", absl::BytesToHexString(value.As<Bytes>()->data));
    case ValueKind::kList: {
      std::string text = "[";
      for (const Value& item : *value.As<List>()) absl::StrAppend(&text, Describe(item, host), ",");
      return text + "]";
    }
    case ValueKind::kTensor: {
      const Tensor& tensor = *value.As<Tensor>();
      const std::string elements = ElementsOf(host == nullptr ? tensor : host(tensor));
      return absl::StrCat(NameOf(tensor.type()), FormatShape(tensor.shape()),
                          tensor.device().is_cuda() ? "gpu" : "", " ",
                          absl::BytesToHexString(elements));
    }
    case ValueKind::kMap:
      return Describe(*value.As<TensorMap>(), host);
  }
  return "unknown";
}

}  // namespace cohort::parallel
