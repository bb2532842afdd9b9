#include "tests/fuzz/parallel/entries_check.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel::fuzz {
namespace {

constexpr size_t kMostText = 2048;

absl::Status Broken(absl::string_view what) { return absl::InternalError(what); }

absl::Status CheckError(const absl::Status& error) {
  if (!absl::IsInvalidArgument(error) && !absl::IsResourceExhausted(error)) {
    return Broken(error.ToString());
  }
  if (error.message().size() > kMostText) return Broken("an error is too long");
  return absl::OkStatus();
}

absl::Status CheckTensors(const std::vector<TensorEntry>& tensors) {
  int64_t bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    if (static_cast<int>(tensor.shape.size()) > kMaxDims) return Broken("too many dimensions");
    if (tensor.parts < 1 || tensor.parts > kMaxParts || tensor.count() % tensor.parts != 0) {
      return Broken(absl::StrCat("parts of ", tensor.ToString()));
    }
    if (tensor.bytes() < 0 || tensor.bytes() > kMaxTensorBytes - bytes) {
      return Broken(absl::StrCat("too many bytes with ", tensor.ToString()));
    }
    bytes += tensor.bytes();
  }
  return absl::OkStatus();
}

// Encodes the map again, with tensors whose elements are not read.
absl::StatusOr<std::string> EncodeAgain(DecodedMap decoded) {
  alignas(64) static char nowhere[64];
  const std::vector<TensorEntry> entries = decoded.tensors();
  for (size_t i = 0; i < entries.size(); ++i) {
    decoded.Fill(i, Tensor(nowhere, entries[i].type, entries[i].shape, nullptr,
                           entries[i].on_gpu ? Device::Cuda(0) : Device::Host()));
  }
  size_t next = 0;
  COHORT_ASSIGN_OR_RETURN(const EncodedMap encoded,
                          EncodeMap(std::move(decoded).Take(),
                                    [&](WayTo, const Tensor&) { return entries[next++].parts; }));
  return encoded.entries;
}

}  // namespace

absl::Status CheckEntries(absl::string_view input, bool* accepted) {
  if (const absl::StatusOr<Value> value = DecodeValue(input); !value.ok()) {
    COHORT_RETURN_IF_ERROR(CheckError(value.status()));
  }
  absl::StatusOr<DecodedMap> decoded = DecodedMap::Parse(input);
  if (!decoded.ok()) return CheckError(decoded.status());
  COHORT_RETURN_IF_ERROR(CheckTensors(decoded->tensors()));
  // Equal keys are merged, and numbers may be encoded longer than necessary. So the first encoding
  // is the one that must round-trip.
  const absl::StatusOr<std::string> once = EncodeAgain(*std::move(decoded));
  if (!once.ok()) return Broken(absl::StrCat("does not encode: ", once.status().message()));
  absl::StatusOr<DecodedMap> back = DecodedMap::Parse(*once);
  if (!back.ok()) return Broken(absl::StrCat("does not come back: ", back.status().message()));
  const absl::StatusOr<std::string> twice = EncodeAgain(*std::move(back));
  if (!twice.ok() || *twice != *once) return Broken("comes back as another");
  if (accepted != nullptr) *accepted = true;
  return absl::OkStatus();
}

std::vector<std::string> SampleEntries() {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {2, 3});
  const Tensor on_gpu(tensor.data(), DataType::kF16, {4}, nullptr, Device::Cuda(1));
  const std::vector<TensorMap> maps = {
      {},
      {{"text", "value"}, {"number", int64_t{-5}}, {"real", 0.5}, {"yes", true}, {"none", Value()}},
      {{"hidden", tensor}, {"list", List{tensor, on_gpu, TensorMap{{"deep", List{"x"}}}}}},
  };
  std::vector<std::string> samples;
  for (const TensorMap& map : maps) {
    const absl::StatusOr<EncodedMap> encoded = EncodeMap(map);
    if (encoded.ok()) samples.push_back(encoded->entries);
  }
  const auto in_parts = EncodeMap(maps[2], [](WayTo, const Tensor&) { return 2; });
  if (in_parts.ok()) samples.push_back(in_parts->entries);
  return samples;
}

}  // namespace cohort::parallel::fuzz
