#include "base/tensor/dlpack.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort {
namespace {

// Newer than Debian's header.
constexpr uint8_t kDLBool = 6;
constexpr uint8_t kDLFloat8E4M3FN = 10;
constexpr uint8_t kDLFloat8E4M3FNUZ = 11;
constexpr uint8_t kDLFloat8E5M2 = 12;
constexpr uint8_t kDLFloat8E5M2FNUZ = 13;
constexpr uint8_t kDLFloat8E8M0FNU = 14;
constexpr uint8_t kDLFloat6E2M3FN = 15;
constexpr uint8_t kDLFloat6E3M2FN = 16;
constexpr uint8_t kDLFloat4E2M1FN = 17;

struct Code {
  DataType type;
  uint8_t code;
  uint8_t bits;
  uint8_t lanes = 1;
};
constexpr Code kCodes[] = {
    {DataType::kBool, kDLBool, 8},
    {DataType::kI8, kDLInt, 8},
    {DataType::kU8, kDLUInt, 8},
    {DataType::kI16, kDLInt, 16},
    {DataType::kU16, kDLUInt, 16},
    {DataType::kI32, kDLInt, 32},
    {DataType::kU32, kDLUInt, 32},
    {DataType::kI64, kDLInt, 64},
    {DataType::kU64, kDLUInt, 64},
    {DataType::kF16, kDLFloat, 16},
    {DataType::kBF16, kDLBfloat, 16},
    {DataType::kF32, kDLFloat, 32},
    {DataType::kF64, kDLFloat, 64},
    {DataType::kF8E4M3, kDLFloat8E4M3FN, 8},
    {DataType::kF8E5M2, kDLFloat8E5M2, 8},
    {DataType::kC64, kDLComplex, 64},
    {DataType::kC128, kDLComplex, 128},
    {DataType::kF8E8M0, kDLFloat8E8M0FNU, 8},
    {DataType::kF8E4M3Fnuz, kDLFloat8E4M3FNUZ, 8},
    {DataType::kF8E5M2Fnuz, kDLFloat8E5M2FNUZ, 8},
    {DataType::kF4E2M1x2, kDLFloat4E2M1FN, 4, 2},
    // One number in a byte: a number of eight bits, of which some are not used.
    {DataType::kF4E2M1, kDLFloat4E2M1FN, 8},
    {DataType::kF6E2M3, kDLFloat6E2M3FN, 8},
    {DataType::kF6E3M2, kDLFloat6E3M2FN, 8},
};
static_assert(std::size(kCodes) == kDataTypes.size());

constexpr int kMaxDims = 64;

std::string NameOfDevice(int32_t device) {
  switch (device) {
    case kDLCUDA:
      return "cuda";
    case kDLOpenCL:
      return "opencl";
    case kDLVulkan:
      return "vulkan";
    case kDLMetal:
      return "metal";
    case kDLVPI:
      return "vpi";
    case kDLROCM:
      return "rocm";
    case kDLCUDAManaged:
      return "cuda_managed";
    default:
      return absl::StrCat("device type ", device);
  }
}

absl::StatusOr<Device> DeviceOf(const DLTensor& tensor) {
  // As a number: the enum of this header need not have it.
  int32_t device = 0;
  static_assert(sizeof(device) == sizeof(tensor.device.device_type));
  std::memcpy(&device, &tensor.device.device_type, sizeof(device));
  if (device == kDLCPU || device == kDLCUDAHost || device == kDLROCMHost) return Device::Host();
  const int32_t index = tensor.device.device_id;
  if (device == kDLCUDA && index >= 0 && index <= std::numeric_limits<int16_t>::max()) {
    return Device::Cuda(index);
  }
  return absl::UnimplementedError(
      absl::StrCat("a tensor on ", NameOfDevice(device), ":", index,
                   "; only those in memory of the host or of a GPU of CUDA's can be taken"));
}

absl::StatusOr<DataType> TypeOf(const DLDataType& type) {
  for (const Code& known : kCodes) {
    if (known.code == type.code && known.bits == type.bits && known.lanes == type.lanes) {
      return known.type;
    }
  }
  if (type.lanes != 1) {
    return absl::UnimplementedError(
        absl::StrCat("elements of ", type.lanes, " lanes; only those of one can be taken"));
  }
  return absl::UnimplementedError(
      absl::StrCat("elements of DLPack's type code ", type.code, " with ", type.bits, " bits"));
}

absl::Status Invalid(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("a DLPack tensor ", why));
}

bool Add(int64_t addend, int64_t& sum) { return !__builtin_add_overflow(sum, addend, &sum); }
bool Multiply(int64_t factor, int64_t& product) {
  return !__builtin_mul_overflow(product, factor, &product);
}

// That all elements, and the way to each, fit into addresses. Of at least one element.
absl::Status CheckExtent(const DLTensor& tensor, const Shape& strides, int64_t element) {
  int64_t lowest = 0;
  int64_t highest = element;
  bool fits = true;
  for (size_t i = 0; i < strides.size(); ++i) {
    int64_t way = tensor.shape[i] - 1;
    fits = fits && Multiply(strides[i], way) && Multiply(element, way) &&
           Add(way, way < 0 ? lowest : highest);
  }
  const auto data = reinterpret_cast<uint64_t>(tensor.data);
  uint64_t first = 0;
  fits = fits && !__builtin_add_overflow(data, tensor.byte_offset, &first) &&
         first >= uint64_t{0} - static_cast<uint64_t>(lowest) &&
         first <= std::numeric_limits<uint64_t>::max() - static_cast<uint64_t>(highest);
  if (!fits) return Invalid("whose elements lie outside of the address space");
  if (data == 0) return Invalid("without memory for its elements");
  return absl::OkStatus();
}

absl::StatusOr<Tensor> View(const DLTensor& tensor, std::shared_ptr<const void> owner) {
  COHORT_ASSIGN_OR_RETURN(const Device device, DeviceOf(tensor));
  COHORT_ASSIGN_OR_RETURN(const DataType type, TypeOf(tensor.dtype));
  if (tensor.ndim < 0 || tensor.ndim > kMaxDims) {
    return Invalid(absl::StrCat("of ", tensor.ndim, " dimensions"));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) return Invalid("without a shape");
  const Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  int64_t bytes = SizeOf(type);
  bool fits = true;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return Invalid(absl::StrCat("of shape ", FormatShape(shape)));
    fits = fits && Multiply(extent, bytes);
    empty = empty || extent == 0;
  }
  // No way leads to an element.
  if (empty) {
    return Tensor::Strided(tensor.data, type, shape, Shape(shape.size(), 0), std::move(owner),
                           device);
  }
  if (!fits) {
    return Invalid(absl::StrCat("of shape ", FormatShape(shape), " is larger than memory"));
  }
  const Shape strides = tensor.strides == nullptr
                            ? ContiguousStrides(shape)
                            : Shape(tensor.strides, tensor.strides + tensor.ndim);
  COHORT_RETURN_IF_ERROR(CheckExtent(tensor, strides, SizeOf(type)));
  return Tensor::Strided(static_cast<char*>(tensor.data) + tensor.byte_offset, type, shape, strides,
                         std::move(owner), device);
}

// What ToDLPack gives away.
struct Export {
  Tensor tensor;
  Shape shape;
  Shape strides;
  DLManagedTensor managed;
};

}  // namespace

absl::StatusOr<Tensor> FromDLPack(DLManagedTensor* managed) {
  if (managed == nullptr) return Invalid("that is null");
  std::shared_ptr<const void> owner(managed, [](const void* memory) {
    auto* const tensor = static_cast<DLManagedTensor*>(const_cast<void*>(memory));
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
  return View(managed->dl_tensor, std::move(owner));
}

absl::StatusOr<Tensor> ViewDLPack(const DLTensor& tensor, std::shared_ptr<const void> owner) {
  return View(tensor, std::move(owner));
}

DLManagedTensor* ToDLPack(const Tensor& tensor) {
  auto* const exported = new Export{tensor, tensor.shape(), tensor.strides(), {}};
  DLTensor& view = exported->managed.dl_tensor;
  view.data = tensor.data();
  view.device =
      tensor.device().is_host() ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, tensor.device().index()};
  view.ndim = tensor.dims();
  const Code& code = kCodes[static_cast<size_t>(tensor.type()) - 1];
  view.dtype = {code.code, code.bits, code.lanes};
  view.shape = exported->shape.data();
  view.strides = exported->strides.data();
  view.byte_offset = 0;
  exported->managed.manager_ctx = exported;
  exported->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Export*>(self->manager_ctx);
  };
  return &exported->managed;
}

}  // namespace cohort
