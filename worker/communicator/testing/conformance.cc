#include "worker/communicator/testing/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/tensor/small_float.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"

namespace cohort::worker {
namespace {

// Inputs repeat themselves: a period that fits into no buffer evenly.
constexpr int64_t kPeriod = 29 * 61;

template <typename T>
void Put(T value, char* to) {
  std::memcpy(to, &value, sizeof(value));
}

// A small number with a fraction that all floating types can hold.
void PutNumber(int number, DataType type, char* to) {
  const float fraction = static_cast<float>(number) / 4;
  switch (type) {
    case DataType::kBool:
      return Put<uint8_t>(number % 3 == 0 ? 0 : static_cast<uint8_t>(number), to);
    case DataType::kI8:
    case DataType::kU8:
      return Put<uint8_t>(static_cast<uint8_t>(number), to);
    case DataType::kI16:
    case DataType::kU16:
      return Put<uint16_t>(static_cast<uint16_t>(number * 129), to);
    case DataType::kI32:
    case DataType::kU32:
      return Put<uint32_t>(static_cast<uint32_t>(number) * 0x01234567u, to);
    case DataType::kI64:
    case DataType::kU64:
      return Put<uint64_t>(static_cast<uint64_t>(number) * 0x0123456789ABCDEFu, to);
    case DataType::kF16:
      return Put<uint16_t>(F16FromFloat(fraction), to);
    case DataType::kBF16:
      return Put<uint16_t>(BF16FromFloat(fraction), to);
    case DataType::kF32:
      return Put<float>(fraction, to);
    case DataType::kF64:
      return Put<double>(fraction, to);
    case DataType::kF8E4M3:
      return Put<uint8_t>(F8E4M3FromFloat(fraction), to);
    case DataType::kF8E5M2:
      return Put<uint8_t>(F8E5M2FromFloat(fraction), to);
    case DataType::kC64:
      Put<float>(fraction, to);
      return Put<float>(-fraction, to + sizeof(float));
    case DataType::kC128:
      Put<double>(fraction, to);
      return Put<double>(-fraction, to + sizeof(double));
    case DataType::kF8E8M0:
    case DataType::kF8E4M3Fnuz:
    case DataType::kF8E5M2Fnuz:
    case DataType::kF4E2M1x2:
    case DataType::kF4E2M1:
    case DataType::kF6E2M3:
    case DataType::kF6E3M2:
      return Put<uint8_t>(static_cast<uint8_t>(number), to);
  }
}

template <typename T>
T Get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// An element of a type that can be rounded, and half the distance from 1 to the next.
struct Number {
  double value = 0;
  double half = 0;
};
Number GetNumber(const char* from, DataType type) {
  switch (type) {
    case DataType::kF16:
      return {FloatFromF16(Get<uint16_t>(from)), 0x1p-11};
    case DataType::kBF16:
      return {FloatFromBF16(Get<uint16_t>(from)), 0x1p-8};
    case DataType::kF8E4M3:
      return {FloatFromF8E4M3(Get<uint8_t>(from)), 0x1p-4};
    case DataType::kF8E5M2:
      return {FloatFromF8E5M2(Get<uint8_t>(from)), 0x1p-3};
    case DataType::kF32:
      return {Get<float>(from), 0x1p-24};
    default:
      return {Get<double>(from), 0x1p-53};
  }
}

}  // namespace

std::vector<absl::Status> ConformanceTest::World::Run(
    const std::function<absl::Status(Communicator&)>& body) {
  std::vector<absl::Status> statuses(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank] == nullptr) continue;  // it has left
    threads.emplace_back([&, rank] { statuses[rank] = body(*ranks_[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void ConformanceTest::World::Leave(int rank, const std::string& cause) {
  ranks_[static_cast<size_t>(rank)].reset();
  for (const auto& other : ranks_) {
    if (other != nullptr) other->NoteLeft(rank, cause);
  }
}

void ConformanceTest::ForEachWorld(const std::function<void(World&)>& body) {
  for (const int size : GetParam().sizes) {
    World world = MakeWorld(size);
    ASSERT_EQ(world.size(), size);
    body(world);
    if (HasFatalFailure()) FAIL() << "with " << size << " ranks";
  }
}

bool ConformanceTest::HasSize(int size) const {
  const std::vector<int>& sizes = GetParam().sizes;
  return std::find(sizes.begin(), sizes.end(), size) != sizes.end();
}

Bytes ConformanceTest::Input(int rank, int64_t count, DataType type) {
  const int64_t element = SizeOf(type);
  Bytes bytes(static_cast<size_t>(count * element));
  for (int64_t i = 0; i < std::min(count, kPeriod); ++i) {
    const int number = static_cast<int>((i * 7 + rank * 13 + i / 61) % 29) - 9;
    PutNumber(number, type, bytes.data() + i * element);
  }
  const int64_t period = kPeriod * element;
  for (int64_t at = period; at < count * element; at += period) {
    std::memcpy(bytes.data() + at, bytes.data(),
                static_cast<size_t>(std::min(period, count * element - at)));
  }
  return bytes;
}

std::vector<Bytes> ConformanceTest::Inputs(int size, int64_t count, DataType type) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(Input(rank, count, type));
  return inputs;
}

Bytes ConformanceTest::Reduced(const std::vector<Bytes>& inputs, int64_t at, int64_t count,
                               DataType type, const Reduction& reduction) {
  Bytes result(static_cast<size_t>(count * SizeOf(type)));
  std::vector<const void*> from;
  for (const Bytes& input : inputs) from.push_back(input.data() + at * SizeOf(type));
  void* const to = result.data();
  Reduce(type, reduction, from, absl::MakeConstSpan(&to, 1), count);
  return result;
}

bool ConformanceTest::Matches(const Bytes& result, const Bytes& expected, DataType type) {
  if (result == expected) return true;
  if (!GetParam().rounds_at_each_step || result.size() != expected.size()) return false;
  const auto element = static_cast<size_t>(SizeOf(type));
  for (size_t at = 0; at < result.size(); at += element) {
    if (type == DataType::kBool) {
      if ((result[at] != 0) != (expected[at] != 0)) return false;
    } else if (IsFloating(type)) {
      const Number one = GetNumber(&result[at], type);
      const Number other = GetNumber(&expected[at], type);
      if (one.value == other.value) continue;
      // The sum of eight numbers of up to 5 is rounded seven times.
      const double allowed = one.half * 7 * (40 + std::abs(other.value));
      if (!(std::abs(one.value - other.value) <= allowed)) return false;
    } else if (std::memcmp(&result[at], &expected[at], element) != 0) {
      return false;
    }
  }
  return true;
}

bool ConformanceTest::Has(DataType type, ReduceOp op, int ranks) {
  if (!CheckReducible(type, op).ok()) return false;
  return GetParam().reduces == nullptr || GetParam().reduces(type, op, ranks);
}

Bytes ConformanceTest::Part(const Bytes& bytes, int64_t at, int64_t count, DataType type) {
  const auto begin = bytes.begin() + at * SizeOf(type);
  return Bytes(begin, begin + count * SizeOf(type));
}

std::vector<int64_t> ConformanceTest::Counts(DataType type) {
  std::vector<int64_t> counts = {0, 1, 2, 7, 1000};
  for (const int64_t bytes : {int64_t{16} << 10, int64_t{512} << 10}) {
    const int64_t count = bytes / SizeOf(type);
    counts.insert(counts.end(), {count - 1, count, count + 1});
  }
  counts.push_back((int64_t{1300} << 10) / SizeOf(type) + 5);
  return counts;
}

void ConformanceTest::ExpectOk(const std::vector<absl::Status>& statuses, const std::string& what) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    ASSERT_TRUE(statuses[rank].ok()) << what << ", rank " << rank << ": " << statuses[rank];
  }
}

}  // namespace cohort::worker
