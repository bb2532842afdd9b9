#include "client/perf/pattern.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/fingerprint.h"
#include "base/tensor/small_float.h"

namespace cohort::perf {
namespace {

constexpr int64_t kPeriod = 1021;

// Whole numbers below it are exact in the type.
uint64_t Bound(DataType type) {
  switch (type) {
    case DataType::kBool:
      return 2;
    case DataType::kF8E5M2:
      return 8;
    case DataType::kF8E4M3:
      return 16;
    default:
      return 101;
  }
}

template <typename T>
void Put(T value, char* to) {
  std::memcpy(to, &value, sizeof(value));
}

void PutInteger(DataType type, uint64_t value, char* to) {
  // Little-endian, like all supported machines: the low bytes come first.
  std::memcpy(to, &value, static_cast<size_t>(SizeOf(type)));
}

void PutFloating(DataType type, double value, char* to) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case DataType::kF16:
      return Put(F16FromFloat(single), to);
    case DataType::kBF16:
      return Put(BF16FromFloat(single), to);
    case DataType::kF8E4M3:
      return Put(F8E4M3FromFloat(single), to);
    case DataType::kF8E5M2:
      return Put(F8E5M2FromFloat(single), to);
    case DataType::kF32:
      return Put(single, to);
    case DataType::kF64:
      return Put(value, to);
    case DataType::kC64:
      Put(single, to);
      return Put(-single, to + sizeof(single));
    default:
      Put(value, to);
      return Put(-value, to + sizeof(value));
  }
}

// Wraps like the type's own arithmetic.
int64_t Wrapped(DataType type, uint64_t value) {
  switch (type) {
    case DataType::kI8:
      return static_cast<int8_t>(value);
    case DataType::kI16:
      return static_cast<int16_t>(value);
    case DataType::kI32:
      return static_cast<int32_t>(value);
    case DataType::kU8:
      return static_cast<uint8_t>(value);
    case DataType::kU16:
      return static_cast<uint16_t>(value);
    case DataType::kU32:
      return static_cast<uint32_t>(value);
    default:
      return static_cast<int64_t>(value);
  }
}

// The average counts as a sum. Only integers have bit operations.
template <typename Number>
Number Combined(ReduceOp op, Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    if (op == ReduceOp::kBitAnd) return a & b;
    if (op == ReduceOp::kBitOr) return a | b;
    if (op == ReduceOp::kBitXor) return a ^ b;
  }
  if (op == ReduceOp::kProd) return a * b;
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  return a + b;
}

// Calls put(at, place) for each element of a period.
template <typename PutElement>
std::string MakeSequence(DataType type, const PutElement& put) {
  const int64_t element = SizeOf(type);
  std::string sequence(static_cast<size_t>(kPeriod * element), '\0');
  for (int64_t at = 0; at < kPeriod; ++at) put(at, sequence.data() + at * element);
  return sequence;
}

// Calls work(elements, offset in the period, count) for each stretch of whole periods.
template <typename Work>
void ByPeriod(int64_t first, int64_t count, const Work& work) {
  for (int64_t done = 0; done < count;) {
    const int64_t at = (first + done) % kPeriod;
    const int64_t length = std::min(kPeriod - at, count - done);
    work(done, at, length);
    done += length;
  }
}

int64_t CountDifferent(const std::string& sequence, int64_t element, int64_t first, int64_t count,
                       const void* elements) {
  const auto* const data = static_cast<const char*>(elements);
  int64_t wrong = 0;
  ByPeriod(first, count, [&](int64_t done, int64_t at, int64_t length) {
    const char* const found = data + done * element;
    const char* const wanted = sequence.data() + at * element;
    if (std::memcmp(found, wanted, static_cast<size_t>(length * element)) == 0) return;
    for (int64_t i = 0; i < length; ++i) {
      const int64_t offset = i * element;
      if (std::memcmp(found + offset, wanted + offset, static_cast<size_t>(element)) != 0) ++wrong;
    }
  });
  return wrong;
}

}  // namespace

Pattern::Pattern(DataType type, const Reduction& reduction, int ranks, uint64_t round)
    : type_(type), reduction_(reduction), ranks_(ranks), round_(round) {}

double Pattern::Value(int rank, int64_t at) const {
  const uint64_t chance =
      SplitMix64(SplitMix64(round_ * 1000003 + static_cast<uint64_t>(rank)) +
                 static_cast<uint64_t>(at));
  // Powers of two have exact products.
  if (reduction_.op == ReduceOp::kProd && IsFloating(type_)) return 1.0 + chance % 2;
  return static_cast<double>(chance % Bound(type_));
}

double Pattern::ReducedFloating(int64_t at) const {
  const double scale = reduction_.op == ReduceOp::kPreMulSum ? reduction_.scale : 1;
  double result = Value(0, at) * scale;
  for (int rank = 1; rank < ranks_; ++rank) {
    result = Combined(reduction_.op, result, Value(rank, at) * scale);
  }
  if (reduction_.op != ReduceOp::kAvg) return result;
  // In the precision in which the type is accumulated.
  if (type_ == DataType::kF64) return result / ranks_;
  return static_cast<float>(result) / static_cast<float>(ranks_);
}

uint64_t Pattern::ReducedInteger(int64_t at) const {
  auto result = static_cast<uint64_t>(Value(0, at));
  for (int rank = 1; rank < ranks_; ++rank) {
    result = Combined(reduction_.op, result, static_cast<uint64_t>(Value(rank, at)));
  }
  if (reduction_.op != ReduceOp::kAvg) return result;
  return static_cast<uint64_t>(Wrapped(type_, result) / ranks_);
}

bool Pattern::ReducedBool(int64_t at) const {
  int count = 0;
  for (int rank = 0; rank < ranks_; ++rank) count += Value(rank, at) != 0 ? 1 : 0;
  switch (reduction_.op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return count == ranks_;
    case ReduceOp::kBitXor:
      return count % 2 == 1;
    default:
      return count > 0;
  }
}

std::string Pattern::Sequence(int rank) const {
  return MakeSequence(type_, [&](int64_t at, char* to) {
    const double value = Value(rank, at);
    if (IsFloating(type_) || IsComplex(type_)) return PutFloating(type_, value, to);
    PutInteger(type_, static_cast<uint64_t>(value), to);
  });
}

std::string Pattern::ReducedSequence() const {
  return MakeSequence(type_, [&](int64_t at, char* to) {
    if (IsFloating(type_)) return PutFloating(type_, ReducedFloating(at), to);
    if (type_ == DataType::kBool) return Put(static_cast<uint8_t>(ReducedBool(at)), to);
    PutInteger(type_, ReducedInteger(at), to);
  });
}

void Pattern::Fill(int rank, int64_t first, int64_t count, void* elements) const {
  const std::string sequence = Sequence(rank);
  const int64_t element = SizeOf(type_);
  auto* const data = static_cast<char*>(elements);
  ByPeriod(first, count, [&](int64_t done, int64_t at, int64_t length) {
    std::memcpy(data + done * element, sequence.data() + at * element,
                static_cast<size_t>(length * element));
  });
}

int64_t Pattern::CountWrong(int rank, int64_t first, int64_t count, const void* elements) const {
  return CountDifferent(Sequence(rank), SizeOf(type_), first, count, elements);
}

int64_t Pattern::CountWrongReduced(int64_t first, int64_t count, const void* elements) const {
  return CountDifferent(ReducedSequence(), SizeOf(type_), first, count, elements);
}

}  // namespace cohort::perf
