// The types of a tensor's elements.
#ifndef COHORT_BASE_TENSOR_DATA_TYPE_H_
#define COHORT_BASE_TENSOR_DATA_TYPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace cohort {

// The values travel between processes and in files: they do not change.
enum class DataType : uint8_t {
  kBool = 1,  // one byte, 0 or not 0
  kI8 = 2,
  kU8 = 3,
  kI16 = 4,
  kU16 = 5,
  kI32 = 6,
  kU32 = 7,
  kI64 = 8,
  kU64 = 9,
  kF16 = 10,
  kBF16 = 11,
  kF32 = 12,
  kF64 = 13,
  kF8E4M3 = 14,  // OCP 8-bit: no infinities, largest 448
  kF8E5M2 = 15,  // OCP 8-bit: IEEE-like, largest 57344
  kC64 = 16,     // two f32; moved, not reduced
  kC128 = 17,    // two f64; moved, not reduced
  // Moved, not reduced. Each element is a byte.
  kF8E8M0 = 18,      // OCP 8-bit: a power of two, a scale of other numbers
  kF8E4M3Fnuz = 19,  // one zero, no infinities
  kF8E5M2Fnuz = 20,  // one zero, no infinities
  kF4E2M1x2 = 21,    // two OCP 4-bit numbers, as PyTorch packs them
  kF4E2M1 = 22,      // one OCP 4-bit number, as ml_dtypes stores it
  kF6E2M3 = 23,      // one OCP 6-bit number, as ml_dtypes stores it
  kF6E3M2 = 24,      // the same
};

inline constexpr std::array<DataType, 24> kDataTypes = {
    DataType::kBool,     DataType::kI8,     DataType::kU8,         DataType::kI16,
    DataType::kU16,      DataType::kI32,    DataType::kU32,        DataType::kI64,
    DataType::kU64,      DataType::kF16,    DataType::kBF16,       DataType::kF32,
    DataType::kF64,      DataType::kF8E4M3, DataType::kF8E5M2,     DataType::kC64,
    DataType::kC128,     DataType::kF8E8M0, DataType::kF8E4M3Fnuz, DataType::kF8E5M2Fnuz,
    DataType::kF4E2M1x2, DataType::kF4E2M1, DataType::kF6E2M3,     DataType::kF6E3M2};

// All data types, by value.
inline constexpr std::array<uint8_t, 25> kElementBytes = {0, 1, 1, 1, 2,  2, 4, 4, 8, 8, 2, 2, 4,
                                                          8, 1, 1, 8, 16, 1, 1, 1, 1, 1, 1, 1};
// The size of one element in bytes.
inline constexpr int64_t SizeOf(DataType type) { return kElementBytes[static_cast<size_t>(type)]; }

// "bool", "i32", "bf16", "f8_e4m3", "c64", ...
absl::string_view NameOf(DataType type);
std::optional<DataType> FindDataType(absl::string_view name);

// Whether a number from another process or program is a DataType.
bool IsDataType(int value);

bool IsInteger(DataType type);   // signed or not; not bool
bool IsFloating(DataType type);  // not complex, not opaque
bool IsComplex(DataType type);
bool IsOpaque(DataType type);  // this library does not know the value of an element

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_DATA_TYPE_H_
