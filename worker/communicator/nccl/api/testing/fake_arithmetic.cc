#include "worker/communicator/nccl/api/testing/fake_arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/tensor/small_float.h"

namespace cohort::worker {
namespace {

// How elements are kept in memory, and computed with.
template <typename T>
struct Plain {
  using Bits = T;
  using Value = T;
  static Value Load(Bits bits) { return bits; }
  static Bits Store(Value value) { return value; }
};

template <typename B, float (*kLoad)(B), B (*kStore)(float)>
struct Small {
  using Bits = B;
  using Value = float;
  static Value Load(Bits bits) { return kLoad(bits); }
  static Bits Store(Value value) { return kStore(value); }
};

template <typename Value>
Value Sum(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    using Unsigned = std::make_unsigned_t<Value>;
    return static_cast<Value>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

template <typename Value>
Value Product(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    // As 64 bits: shorter ones would become signed on the way.
    return static_cast<Value>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename Value>
Value Least(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    return std::min(a, b);
  } else {
    return std::fmin(a, b);
  }
}

template <typename Value>
Value Largest(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    return std::max(a, b);
  } else {
    return std::fmax(a, b);
  }
}

template <typename Value>
Value Combine(ncclRedOp_t op, Value a, Value b) {
  switch (op) {
    case ncclProd:
      return Product(a, b);
    case ncclMax:
      return Largest(a, b);
    case ncclMin:
      return Least(a, b);
    default:
      return Sum(a, b);
  }
}

template <typename Number>
void ReduceOf(ncclRedOp_t op, const std::vector<const void*>& inputs,
              const std::vector<FakeScalar>& scalars, void* output, size_t count) {
  using Bits = typename Number::Bits;
  using Value = typename Number::Value;
  constexpr bool kIntegral = std::is_integral_v<Value>;
  const auto round = [](Value value) { return Number::Load(Number::Store(value)); };
  const auto load = [](const void* from, size_t i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(from) + i * sizeof(Bits), sizeof(Bits));
    return Number::Load(bits);
  };
  std::vector<Value> scales;
  if (op == ncclNumOps) {
    for (const FakeScalar& scalar : scalars) scales.push_back(load(scalar.data(), 0));
  } else if (op == ncclAvg && !kIntegral) {
    scales.assign(inputs.size(), round(Value{1} / static_cast<Value>(inputs.size())));
  }
  for (size_t i = 0; i < count; ++i) {
    Value result{};
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      Value value = load(inputs[rank], i);
      if (!scales.empty()) value = round(Product(value, scales[rank]));
      result = rank == 0 ? value : round(Combine(op, result, value));
    }
    if constexpr (kIntegral) {
      if (op == ncclAvg) result = static_cast<Value>(result / static_cast<Value>(inputs.size()));
    }
    const Bits bits = Number::Store(result);
    std::memcpy(static_cast<char*>(output) + i * sizeof(Bits), &bits, sizeof(Bits));
  }
}

}  // namespace

size_t NcclBytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

void ReduceAsNccl(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& inputs,
                  const std::vector<FakeScalar>& scalars, void* output, size_t count) {
  switch (type) {
    case ncclInt8:
      return ReduceOf<Plain<int8_t>>(op, inputs, scalars, output, count);
    case ncclUint8:
      return ReduceOf<Plain<uint8_t>>(op, inputs, scalars, output, count);
    case ncclInt32:
      return ReduceOf<Plain<int32_t>>(op, inputs, scalars, output, count);
    case ncclUint32:
      return ReduceOf<Plain<uint32_t>>(op, inputs, scalars, output, count);
    case ncclInt64:
      return ReduceOf<Plain<int64_t>>(op, inputs, scalars, output, count);
    case ncclUint64:
      return ReduceOf<Plain<uint64_t>>(op, inputs, scalars, output, count);
    case ncclFloat32:
      return ReduceOf<Plain<float>>(op, inputs, scalars, output, count);
    case ncclFloat64:
      return ReduceOf<Plain<double>>(op, inputs, scalars, output, count);
    case ncclFloat16:
      return ReduceOf<Small<uint16_t, FloatFromF16, F16FromFloat>>(op, inputs, scalars, output,
                                                                   count);
    case ncclBfloat16:
      return ReduceOf<Small<uint16_t, FloatFromBF16, BF16FromFloat>>(op, inputs, scalars, output,
                                                                     count);
    case ncclFloat8e4m3:
      return ReduceOf<Small<uint8_t, FloatFromF8E4M3, F8E4M3FromFloat>>(op, inputs, scalars, output,
                                                                        count);
    case ncclFloat8e5m2:
      return ReduceOf<Small<uint8_t, FloatFromF8E5M2, F8E5M2FromFloat>>(op, inputs, scalars, output,
                                                                        count);
    default:
      return;
  }
}

}  // namespace cohort::worker
