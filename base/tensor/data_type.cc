#include "base/tensor/data_type.h"

namespace cohort {
namespace {

struct Info {
  DataType type;
  absl::string_view name;
};

// By value, from 1.
constexpr Info kInfos[] = {
    {DataType::kBool, "bool"},
    {DataType::kI8, "i8"},
    {DataType::kU8, "u8"},
    {DataType::kI16, "i16"},
    {DataType::kU16, "u16"},
    {DataType::kI32, "i32"},
    {DataType::kU32, "u32"},
    {DataType::kI64, "i64"},
    {DataType::kU64, "u64"},
    {DataType::kF16, "f16"},
    {DataType::kBF16, "bf16"},
    {DataType::kF32, "f32"},
    {DataType::kF64, "f64"},
    {DataType::kF8E4M3, "f8_e4m3"},
    {DataType::kF8E5M2, "f8_e5m2"},
    {DataType::kC64, "c64"},
    {DataType::kC128, "c128"},
    {DataType::kF8E8M0, "f8_e8m0"},
    {DataType::kF8E4M3Fnuz, "f8_e4m3fnuz"},
    {DataType::kF8E5M2Fnuz, "f8_e5m2fnuz"},
    {DataType::kF4E2M1x2, "f4_e2m1x2"},
    {DataType::kF4E2M1, "f4_e2m1"},
    {DataType::kF6E2M3, "f6_e2m3"},
    {DataType::kF6E3M2, "f6_e3m2"},
};

constexpr bool InOrder() {
  int value = 0;
  for (const Info& info : kInfos) {
    if (static_cast<int>(info.type) != ++value) return false;
  }
  return value == static_cast<int>(kDataTypes.size());
}
static_assert(InOrder(), "kInfos must be in the order of DataType");
static_assert(kElementBytes.size() == kDataTypes.size() + 1);

const Info& InfoOf(DataType type) { return kInfos[static_cast<int>(type) - 1]; }

}  // namespace

absl::string_view NameOf(DataType type) { return InfoOf(type).name; }

std::optional<DataType> FindDataType(absl::string_view name) {
  for (const Info& info : kInfos) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

bool IsDataType(int value) { return value >= 1 && value <= static_cast<int>(kDataTypes.size()); }

bool IsInteger(DataType type) { return type >= DataType::kI8 && type <= DataType::kU64; }

bool IsFloating(DataType type) { return type >= DataType::kF16 && type <= DataType::kF8E5M2; }

bool IsComplex(DataType type) { return type == DataType::kC64 || type == DataType::kC128; }

bool IsOpaque(DataType type) { return type >= DataType::kF8E8M0; }

}  // namespace cohort
