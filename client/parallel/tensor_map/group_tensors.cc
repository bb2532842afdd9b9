#include "client/parallel/tensor_map/group_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/packing.h"

namespace cohort::parallel {

absl::Status CheckMoves(const client::Group& group, const Path& path, const Tensor& tensor) {
  const bool on_host = tensor.device().is_host();
  const Placement unmoved = on_host ? Placement::kDevice : Placement::kHost;
  if (group.placement() == unmoved) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry ", FormatPath(path), " is ", tensor.ToString(),
                     on_host ? " in memory of the host" : "", ": the placement of group ",
                     group.name(), " is ", NameOf(group.placement())));
  }
  if (on_host || tensor.device() == group.device()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("entry ", FormatPath(path), " is ",
                                                 tensor.ToString(), ", and should be on ",
                                                 group.device().ToString()));
}

absl::StatusOr<Tensor> AllocateFor(client::Group& group, const TensorEntry& entry) {
  const Device device = entry.on_gpu ? group.device() : Device::Host();
  if (entry.on_gpu && device.is_host()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no room for ", entry.ToString(), ": this rank has none"));
  }
  if (entry.count() == 0) return Tensor(nullptr, entry.type, entry.shape, nullptr, device);
  return group.Allocate(entry.type, entry.shape, device);
}

absl::StatusOr<std::vector<Tensor>> AllocateAll(client::Group& group,
                                                const std::vector<TensorEntry>& entries) {
  const Packing packing = Packing::Of(0, entries);
  Tensor on_host;
  Tensor on_gpu;
  std::vector<Tensor> tensors;
  tensors.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const TensorEntry& entry = entries[i];
    if (!packing.is_packed(i)) {
      COHORT_ASSIGN_OR_RETURN(Tensor tensor, AllocateFor(group, entry));
      tensors.push_back(std::move(tensor));
      continue;
    }
    Tensor& pack = entry.on_gpu ? on_gpu : on_host;
    if (pack.count() == 0 && entry.on_gpu) {
      const TensorEntry all = {DataType::kU8, /*on_gpu=*/true, 1, {packing.gpu_bytes()}};
      COHORT_ASSIGN_OR_RETURN(pack, AllocateFor(group, all));
    } else if (pack.count() == 0) {
      COHORT_ASSIGN_OR_RETURN(pack, AllocateSmall(group, packing.front_bytes()));
    }
    tensors.push_back(packing.ViewOf(i, entry, pack));
  }
  return tensors;
}

absl::StatusOr<Tensor> AllocateSmall(client::Group& group, int64_t bytes) {
  if (bytes <= kSmallOnHost || group.placement() == Placement::kDevice) {
    return Tensor::Uninitialized(DataType::kU8, {bytes});
  }
  return group.Allocate(DataType::kU8, {bytes});
}

}  // namespace cohort::parallel
