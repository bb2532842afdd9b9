#include "worker/group/testing/rank_program/sample_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/tensor/small_float.h"

namespace cohort::testing {
namespace {

bool IsSigned(DataType type) {
  return type == DataType::kI8 || type == DataType::kI16 || type == DataType::kI32 ||
         type == DataType::kI64;
}

// Returns a number from -6 to 6.
int Number(const SampleSet& set, int rank, int64_t i) {
  uint64_t bits =
      (uint64_t{set.seed} << 32) ^ (static_cast<uint64_t>(i) << 4) ^ static_cast<uint64_t>(rank);
  bits *= 0x9E3779B97F4A7C15u;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9u;
  return static_cast<int>((bits >> 33) % 13) - 6;
}

// Returns an integer that uses all bytes of its type.
int64_t Integer(DataType type, int number) {
  const int64_t value = IsSigned(type) ? number : number + 6;
  switch (SizeOf(type)) {
    case 1:
      return value;
    case 2:
      return value * 129;
    case 4:
      return value * 0x01234567;
    default:
      return value * 0x0123456789ABCDEF;
  }
}

template <typename T>
void Put(T value, char* to) {
  std::memcpy(to, &value, sizeof(value));
}
template <typename T>
T Get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Stores a quarter of `number`, which all floating types represent exactly.
void PutSample(int number, DataType type, char* to) {
  const float fraction = static_cast<float>(number) / 4;
  switch (type) {
    case DataType::kBool:
      return Put<uint8_t>(static_cast<uint8_t>(number > 0 ? number : 0), to);
    case DataType::kF16:
      return Put(F16FromFloat(fraction), to);
    case DataType::kBF16:
      return Put(BF16FromFloat(fraction), to);
    case DataType::kF32:
      return Put(fraction, to);
    case DataType::kF64:
      return Put(static_cast<double>(fraction), to);
    case DataType::kF8E4M3:
      return Put(F8E4M3FromFloat(fraction), to);
    case DataType::kF8E5M2:
      return Put(F8E5M2FromFloat(fraction), to);
    case DataType::kC64:
      Put(fraction, to);
      return Put(-fraction, to + sizeof(float));
    case DataType::kC128:
      Put(static_cast<double>(fraction), to);
      return Put(-static_cast<double>(fraction), to + sizeof(double));
    default: {
      // The machine is little-endian: the low bytes come first.
      const int64_t value = Integer(type, number);
      std::memcpy(to, &value, static_cast<size_t>(SizeOf(type)));
    }
  }
}

double GetFloat(DataType type, const char* from) {
  switch (type) {
    case DataType::kF16:
      return FloatFromF16(Get<uint16_t>(from));
    case DataType::kBF16:
      return FloatFromBF16(Get<uint16_t>(from));
    case DataType::kF8E4M3:
      return FloatFromF8E4M3(Get<uint8_t>(from));
    case DataType::kF8E5M2:
      return FloatFromF8E5M2(Get<uint8_t>(from));
    case DataType::kF32:
      return Get<float>(from);
    default:
      return Get<double>(from);
  }
}

// Half the distance from 1 to the next number, and the least number above 0.
struct Precision {
  double half = 0;
  double least = 0;
};
Precision PrecisionOf(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {0x1p-11, 0x1p-24};
    case DataType::kBF16:
      return {0x1p-8, 0x1p-133};
    case DataType::kF8E4M3:
      return {0x1p-4, 0x1p-9};
    case DataType::kF8E5M2:
      return {0x1p-3, 0x1p-16};
    case DataType::kF32:
      return {0x1p-24, 0x1p-149};
    default:
      return {0x1p-53, 0x1p-1074};
  }
}

// The expected value of an element.
struct Expected {
  double value = 0;    // of a floating type
  double allowed = 0;  // the largest error
  uint64_t bits = 0;   // of another type: the low bits count
};

Expected ReduceFloats(const std::vector<double>& numbers, DataType type,
                      const Reduction& reduction) {
  const double scale = reduction.op == ReduceOp::kPreMulSum ? reduction.scale : 1;
  double sum = 0;
  double magnitude = 0;
  double product = 1;
  for (const double number : numbers) {
    sum += number * scale;
    magnitude += std::abs(number * scale);
    product *= number;
  }
  const auto ranks = static_cast<double>(numbers.size());
  const Precision precision = PrecisionOf(type);
  // One rounding for each step, for the scale, and for the result.
  const double rounded = precision.half * (ranks + 3);
  switch (reduction.op) {
    case ReduceOp::kProd:
      return {product, rounded * std::abs(product) + precision.least * ranks * 4};
    case ReduceOp::kMin:
      return {*std::min_element(numbers.begin(), numbers.end())};
    case ReduceOp::kMax:
      return {*std::max_element(numbers.begin(), numbers.end())};
    case ReduceOp::kAvg:
      return {sum / ranks, rounded * magnitude / ranks + precision.least * ranks};
    default:
      return {sum, rounded * magnitude + precision.least * ranks};
  }
}

// Integers wrap around.
uint64_t ReduceIntegers(const std::vector<int64_t>& numbers, DataType type, ReduceOp op) {
  uint64_t sum = 0;
  uint64_t product = 1;
  uint64_t ands = ~uint64_t{0};
  uint64_t ors = 0;
  uint64_t xors = 0;
  for (const int64_t number : numbers) {
    const auto bits = static_cast<uint64_t>(number);
    sum += bits;
    product *= bits;
    ands &= bits;
    ors |= bits;
    xors ^= bits;
  }
  switch (op) {
    case ReduceOp::kSum:
      return sum;
    case ReduceOp::kProd:
      return product;
    case ReduceOp::kMin:
      return static_cast<uint64_t>(*std::min_element(numbers.begin(), numbers.end()));
    case ReduceOp::kMax:
      return static_cast<uint64_t>(*std::max_element(numbers.begin(), numbers.end()));
    case ReduceOp::kAvg:
      return IsSigned(type) ? static_cast<uint64_t>(static_cast<int64_t>(sum) /
                                                    static_cast<int64_t>(numbers.size()))
                            : sum / numbers.size();
    case ReduceOp::kBitAnd:
      return ands;
    case ReduceOp::kBitOr:
      return ors;
    default:
      return xors;
  }
}

bool ReduceBools(const std::vector<int64_t>& numbers, ReduceOp op) {
  const auto is_true = [](int64_t number) { return number != 0; };
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return std::any_of(numbers.begin(), numbers.end(), is_true);
    case ReduceOp::kBitXor:
      return std::count_if(numbers.begin(), numbers.end(), is_true) % 2 == 1;
    default:
      return std::all_of(numbers.begin(), numbers.end(), is_true);
  }
}

Expected ReduceElement(const SampleSet& set, const Reduction& reduction, int64_t i) {
  std::vector<double> floats;
  std::vector<int64_t> integers;
  for (int rank = 0; rank < set.ranks; ++rank) {
    const int number = Number(set, rank, i);
    floats.push_back(static_cast<double>(number) / 4);
    integers.push_back(set.type == DataType::kBool ? std::max(number, 0)
                                                   : Integer(set.type, number));
  }
  if (IsFloating(set.type)) return ReduceFloats(floats, set.type, reduction);
  Expected expected;
  expected.bits = set.type == DataType::kBool
                      ? static_cast<uint64_t>(ReduceBools(integers, reduction.op))
                      : ReduceIntegers(integers, set.type, reduction.op);
  return expected;
}

// Returns why `element` is wrong; empty if it is right.
std::string WhyNot(const Expected& expected, DataType type, const char* element) {
  if (IsFloating(type)) {
    const double value = GetFloat(type, element);
    if (std::abs(value - expected.value) <= expected.allowed) return "";
    return absl::StrCat("is ", value, ", not ", expected.value, " by ", expected.allowed);
  }
  if (type == DataType::kBool) {
    if ((*element != 0) == (expected.bits != 0)) return "";
    return absl::StrCat("is ", *element != 0 ? "true" : "false");
  }
  uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(SizeOf(type)));
  const int unused = 64 - 8 * static_cast<int>(SizeOf(type));
  if (bits << unused == expected.bits << unused) return "";
  return absl::StrCat("is ", absl::Hex(bits), ", not ",
                      absl::Hex(expected.bits << unused >> unused));
}

}  // namespace

std::string Sample(const SampleSet& set, int rank, int64_t at, int64_t count) {
  const int64_t element = SizeOf(set.type);
  std::string period(static_cast<size_t>(kSamplePeriod * element), '\0');
  const int64_t needed = std::min(count, kSamplePeriod);
  for (int64_t i = 0; i < needed; ++i) {
    const int64_t phase = (at + i) % kSamplePeriod;
    PutSample(Number(set, rank, phase), set.type, period.data() + i * element);
  }
  std::string sample;
  const auto bytes = static_cast<size_t>(count * element);
  sample.reserve(bytes);
  while (sample.size() < bytes) sample.append(period, 0, bytes - sample.size());
  return sample;
}

absl::Status CheckReduced(const SampleSet& set, const Reduction& reduction, int64_t at,
                          absl::string_view result) {
  const auto element = static_cast<size_t>(SizeOf(set.type));
  const size_t period = static_cast<size_t>(kSamplePeriod) * element;
  std::vector<Expected> expected;
  for (size_t begin = 0; begin < result.size(); begin += period) {
    const absl::string_view part = result.substr(begin, period);
    // Most periods have the same bits as the first, which was checked.
    if (begin > 0 && part == result.substr(0, part.size())) continue;
    for (size_t i = 0; i * element < part.size(); ++i) {
      if (i == expected.size()) {
        const int64_t phase = (at + static_cast<int64_t>(i)) % kSamplePeriod;
        expected.push_back(ReduceElement(set, reduction, phase));
      }
      const std::string why = WhyNot(expected[i], set.type, part.data() + i * element);
      if (why.empty()) continue;
      return absl::DataLossError(absl::StrCat("element ", begin / element + i, " ", why));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMoved(DataType type, absl::string_view expected, absl::string_view result) {
  if (expected == result) return absl::OkStatus();
  if (expected.size() != result.size()) {
    return absl::DataLossError(
        absl::StrCat(result.size(), " bytes have come, not ", expected.size()));
  }
  const auto wrong = std::mismatch(expected.begin(), expected.end(), result.begin()).first;
  const auto element = static_cast<size_t>(SizeOf(type));
  const size_t at = static_cast<size_t>(wrong - expected.begin()) / element;
  const auto hex = [&](absl::string_view bytes) {
    return absl::BytesToHexString(bytes.substr(at * element, element));
  };
  return absl::DataLossError(
      absl::StrCat("element ", at, " has the bytes ", hex(result), ", not ", hex(expected)));
}

}  // namespace cohort::testing
