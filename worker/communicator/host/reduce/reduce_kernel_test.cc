// Every type and operation on every kind of vectors that this machine has, beside a plain loop.
#include "worker/communicator/host/reduce/reduce_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "base/tensor/small_float.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace cohort::worker {
namespace {

using Bytes = std::vector<uint8_t>;

// --- What must come out, an element at a time, in the widest type that loses nothing.

template <typename T>
T Get(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T>
void Put(T value, uint8_t* to) {
  std::memcpy(to, &value, sizeof(value));
}

template <typename Sum>
Sum Combine(ReduceOp op, Sum a, Sum b) {
  if constexpr (std::is_floating_point_v<Sum>) {
    if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Sum>::quiet_NaN();
    }
  } else {
    if (op == ReduceOp::kBitAnd) return a & b;
    if (op == ReduceOp::kBitOr) return a | b;
    if (op == ReduceOp::kBitXor) return a ^ b;
    if (op == ReduceOp::kProd) {  // may be too large, and is cut anyway
      return static_cast<Sum>(static_cast<unsigned __int128>(a) *
                              static_cast<unsigned __int128>(b));
    }
  }
  switch (op) {
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

template <typename Sum, typename Read, typename Write>
void ReduceFloating(const Reduction& reduction, const std::vector<const uint8_t*>& inputs,
                    uint8_t* output, const Read& read, const Write& write) {
  const bool scaled = reduction.op == ReduceOp::kPreMulSum;
  const Sum scale = scaled ? static_cast<Sum>(reduction.scale) : Sum{1};
  Sum sum = read(inputs[0]) * scale;
  for (size_t k = 1; k < inputs.size(); ++k) {
    const volatile Sum product = read(inputs[k]) * scale;  // rounded on its own
    sum = Combine<Sum>(reduction.op, sum, product);
  }
  if (reduction.op == ReduceOp::kAvg) sum /= static_cast<Sum>(inputs.size());
  write(sum, output);
}

// Wraps as its 128 bits are cut to those of T.
template <typename T>
void ReduceInteger(ReduceOp op, const std::vector<const uint8_t*>& inputs, uint8_t* output) {
  using Wide = __int128;
  T sum = Get<T>(inputs[0]);
  for (size_t k = 1; k < inputs.size(); ++k) {
    sum = static_cast<T>(Combine<Wide>(op, sum, Get<T>(inputs[k])));
  }
  if (op == ReduceOp::kAvg) sum = static_cast<T>(Wide{sum} / static_cast<Wide>(inputs.size()));
  Put<T>(sum, output);
}

void ReduceBool(ReduceOp op, const std::vector<const uint8_t*>& inputs, uint8_t* output) {
  const size_t count = static_cast<size_t>(std::count_if(
      inputs.begin(), inputs.end(), [](const uint8_t* value) { return *value != 0; }));
  switch (op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      *output = count == inputs.size();
      break;
    case ReduceOp::kBitXor:
      *output = count % 2;
      break;
    default:
      *output = count > 0;
  }
}

void Expected(DataType type, const Reduction& reduction, const std::vector<const uint8_t*>& inputs,
              uint8_t* output) {
  switch (type) {
    case DataType::kBool:
      return ReduceBool(reduction.op, inputs, output);
    case DataType::kI8:
      return ReduceInteger<int8_t>(reduction.op, inputs, output);
    case DataType::kU8:
      return ReduceInteger<uint8_t>(reduction.op, inputs, output);
    case DataType::kI16:
      return ReduceInteger<int16_t>(reduction.op, inputs, output);
    case DataType::kU16:
      return ReduceInteger<uint16_t>(reduction.op, inputs, output);
    case DataType::kI32:
      return ReduceInteger<int32_t>(reduction.op, inputs, output);
    case DataType::kU32:
      return ReduceInteger<uint32_t>(reduction.op, inputs, output);
    case DataType::kI64:
      return ReduceInteger<int64_t>(reduction.op, inputs, output);
    case DataType::kU64:
      return ReduceInteger<uint64_t>(reduction.op, inputs, output);
    case DataType::kF32:
      return ReduceFloating<float>(reduction, inputs, output, Get<float>, Put<float>);
    case DataType::kF64:
      return ReduceFloating<double>(reduction, inputs, output, Get<double>, Put<double>);
    case DataType::kF16:
      return ReduceFloating<float>(
          reduction, inputs, output,
          [](const uint8_t* from) { return FloatFromF16(Get<uint16_t>(from)); },
          [](float sum, uint8_t* to) { Put(F16FromFloat(sum), to); });
    case DataType::kBF16:
      return ReduceFloating<float>(
          reduction, inputs, output,
          [](const uint8_t* from) { return FloatFromBF16(Get<uint16_t>(from)); },
          [](float sum, uint8_t* to) { Put(BF16FromFloat(sum), to); });
    case DataType::kF8E4M3:
      return ReduceFloating<float>(
          reduction, inputs, output, [](const uint8_t* from) { return FloatFromF8E4M3(*from); },
          [](float sum, uint8_t* to) { *to = F8E4M3FromFloat(sum); });
    case DataType::kF8E5M2:
      return ReduceFloating<float>(
          reduction, inputs, output, [](const uint8_t* from) { return FloatFromF8E5M2(*from); },
          [](float sum, uint8_t* to) { *to = F8E5M2FromFloat(sum); });
    default:
      FAIL() << NameOf(type) << " is not reduced";
  }
}

bool IsNan(DataType type, const uint8_t* bits) {
  switch (type) {
    case DataType::kF16:
      return std::isnan(FloatFromF16(Get<uint16_t>(bits)));
    case DataType::kBF16:
      return std::isnan(FloatFromBF16(Get<uint16_t>(bits)));
    case DataType::kF32:
      return std::isnan(Get<float>(bits));
    case DataType::kF64:
      return std::isnan(Get<double>(bits));
    case DataType::kF8E4M3:
      return std::isnan(FloatFromF8E4M3(*bits));
    case DataType::kF8E5M2:
      return std::isnan(FloatFromF8E5M2(*bits));
    default:
      return false;
  }
}

// The same bits; all NaNs, and the two zeros of min and max, are one.
bool Same(DataType type, ReduceOp op, const uint8_t* a, const uint8_t* b) {
  const size_t size = static_cast<size_t>(SizeOf(type));
  if (std::memcmp(a, b, size) == 0) return true;
  if (IsNan(type, a) && IsNan(type, b)) return true;
  if (!IsFloating(type) || (op != ReduceOp::kMin && op != ReduceOp::kMax)) return false;
  const auto is_zero = [size](const uint8_t* bits) {
    return std::all_of(bits, bits + size - 1, [](uint8_t byte) { return byte == 0; }) &&
           (bits[size - 1] & 0x7F) == 0;
  };
  return is_zero(a) && is_zero(b);
}

// --- The cases.

// Bytes that begin `shift` bytes behind a cache line, and show writes beside them.
class Framed {
 public:
  Framed(size_t bytes, size_t shift) : all_(bytes + 200, 0xAB), bytes_(bytes) {
    at_ = 64 - reinterpret_cast<uintptr_t>(all_.data()) % 64 + shift;
  }
  uint8_t* data() { return all_.data() + at_; }
  void ExpectEq(const Bytes& expected) const {
    EXPECT_EQ(Bytes(all_.data() + at_, all_.data() + at_ + bytes_), expected);
    EXPECT_EQ(all_[at_ - 1], 0xAB);
    EXPECT_EQ(all_[at_ + bytes_], 0xAB);
  }

 private:
  Bytes all_;
  const size_t bytes_;
  size_t at_ = 0;
};

// The sum of the inputs, a few elements at a time.
Bytes SumInPieces(DataType type, const std::vector<Bytes>& inputs) {
  const size_t size = static_cast<size_t>(SizeOf(type));
  Bytes sum(inputs[0].size());
  constexpr size_t kPiece = 100;
  for (size_t at = 0; at < sum.size(); at += kPiece * size) {
    std::vector<const void*> from;
    for (const Bytes& input : inputs) from.push_back(input.data() + at);
    const size_t count = std::min(kPiece, (sum.size() - at) / size);
    Reduce(type, {ReduceOp::kSum}, from, std::vector<void*>{sum.data() + at},
           static_cast<int64_t>(count));
  }
  return sum;
}

class ReduceTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  std::mt19937_64 random_{20261121};
};

// Any bits: small and huge numbers, infinities, NaNs.
TEST_P(ReduceTest, IsWhatAPlainLoopGives) {
  for (const DataType type : kDataTypes) {
    const size_t size = static_cast<size_t>(SizeOf(type));
    for (const ReduceOp op : kReduceOps) {
      if (!CheckReducible(type, op).ok()) continue;
      const Reduction reduction = {op, 0.37};
      for (const size_t count : {size_t{1}, size_t{7}, size_t{64}, size_t{131}, size_t{1100}}) {
        for (const size_t ranks : {size_t{1}, size_t{2}, size_t{3}, size_t{8}}) {
          // Not aligned, even for two bytes.
          std::vector<Bytes> inputs(ranks, Bytes(count * size + 1));
          std::vector<const void*> from;
          for (Bytes& input : inputs) {
            for (uint8_t& byte : input) byte = static_cast<uint8_t>(random_());
            from.push_back(input.data() + 1);
          }
          std::vector<Bytes> outputs(2, Bytes(count * size + 2, 0xAB));
          const std::vector<void*> to = {outputs[0].data() + 1, outputs[1].data() + 1};
          Reduce(type, reduction, from, to, static_cast<int64_t>(count));
          for (size_t i = 0; i < count; ++i) {
            std::vector<const uint8_t*> elements;
            for (const Bytes& input : inputs) elements.push_back(input.data() + 1 + i * size);
            uint8_t expected[16];
            Expected(type, reduction, elements, expected);
            for (const Bytes& output : outputs) {
              ASSERT_TRUE(Same(type, op, output.data() + 1 + i * size, expected))
                  << NameOf(type) << " " << NameOf(op) << ", element " << i << " of " << count
                  << ", " << ranks << " ranks";
            }
          }
          for (const Bytes& output : outputs) {
            ASSERT_EQ(output.front(), 0xAB);
            ASSERT_EQ(output.back(), 0xAB) << NameOf(type) << " wrote too far";
          }
        }
      }
    }
  }
}

TEST_P(ReduceTest, AnOutputMayBeAnInput) {
  for (const DataType type : {DataType::kF32, DataType::kBF16, DataType::kI8, DataType::kF8E4M3}) {
    const size_t size = static_cast<size_t>(SizeOf(type));
    constexpr size_t kCount = 777;
    std::vector<Bytes> inputs(3, Bytes(kCount * size));
    for (Bytes& input : inputs) {
      for (uint8_t& byte : input) byte = static_cast<uint8_t>(random_() % 0x60);
    }
    const std::vector<Bytes> before = inputs;
    Bytes apart(kCount * size);
    const std::vector<const void*> from = {before[0].data(), before[1].data(), before[2].data()};
    const std::vector<void*> to = {apart.data()};
    Reduce(type, {ReduceOp::kSum}, from, to, kCount);
    const std::vector<const void*> in = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
    const std::vector<void*> out = {inputs[1].data(), inputs[2].data()};
    Reduce(type, {ReduceOp::kSum}, in, out, kCount);
    EXPECT_EQ(inputs[0], before[0]);
    EXPECT_EQ(inputs[1], apart) << NameOf(type);
    EXPECT_EQ(inputs[2], apart) << NameOf(type);
  }
}

TEST_P(ReduceTest, SmallFloatsAreRoundedOnce) {
  // One and eight times 2^-9: rounded after each, nothing would be added.
  const std::vector<uint16_t> numbers = {0x3F80, 0x3B00, 0x3B00, 0x3B00, 0x3B00};
  std::vector<const void*> from;
  for (const uint16_t& number : numbers) from.push_back(&number);
  uint16_t sum = 0;
  void* const to = &sum;
  Reduce(DataType::kBF16, {ReduceOp::kSum}, from, absl::MakeConstSpan(&to, 1), 1);
  EXPECT_EQ(FloatFromBF16(sum), 1.0f + 0x1p-7f);
}

// Outputs that begin anywhere, alike or not. Large ones are written by aligned stores.
TEST_P(ReduceTest, ResultsDoNotDependOnWhereOutputsBegin) {
  for (const DataType type : {DataType::kF32, DataType::kF64, DataType::kBF16, DataType::kF16,
                              DataType::kI8, DataType::kU64, DataType::kF8E5M2}) {
    const size_t size = static_cast<size_t>(SizeOf(type));
    for (const size_t count : {1, 15, 16, 100, 1031, 20'011}) {
      std::vector<Bytes> inputs(3, Bytes(count * size));
      for (Bytes& input : inputs) {
        for (uint8_t& byte : input) byte = static_cast<uint8_t>(random_() % 0x60);
      }
      const std::vector<const void*> from = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
      const Bytes sum = SumInPieces(type, inputs);
      for (const size_t shift : {size_t{0}, size, size_t{1}, 3 * size}) {
        for (const size_t other_shift : {shift, size_t{0}}) {
          for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
            Framed one(count * size, shift);
            Framed two(count * size, other_shift);
            const std::vector<void*> to = {one.data(), two.data()};
            Reduce(type, {ReduceOp::kSum}, from, to, static_cast<int64_t>(count), stores);
            for (const Framed* result : {&one, &two}) result->ExpectEq(sum);
            Copy(inputs[0].data(), to, static_cast<int64_t>(count * size), stores);
            for (const Framed* result : {&one, &two}) result->ExpectEq(inputs[0]);
          }
        }
      }
    }
  }
}

TEST_P(ReduceTest, NothingIsTouchedForNoElements) {
  const void* const from = nullptr;
  void* const to = nullptr;
  Reduce(DataType::kF32, {ReduceOp::kSum}, absl::MakeConstSpan(&from, 1),
         absl::MakeConstSpan(&to, 1), 0);
}

// A root may have only its input.
TEST_P(ReduceTest, NothingIsReadForNoOutput) {
  for (const DataType type : {DataType::kF32, DataType::kI32, DataType::kF8E4M3}) {
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      const void* const from = nullptr;
      Reduce(type, {ReduceOp::kSum}, absl::MakeConstSpan(&from, 1), {}, 1 << 20, stores);
      Copy(from, {}, 1 << 20, stores);
    }
  }
}

std::vector<uint32_t> Targets() {
  std::vector<uint32_t> targets;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back(static_cast<uint32_t>(target));
  }
  return targets;
}

INSTANTIATE_TEST_SUITE_P(OnEach, ReduceTest, ::testing::ValuesIn(Targets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace cohort::worker
