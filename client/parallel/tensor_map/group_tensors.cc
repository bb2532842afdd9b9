#include "client/parallel/tensor_map/group_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/host_tensor.h"
#include "client/parallel/tensor_map/entries/packing.h"

namespace cohort::parallel {

bool Moves(const client::Group& group, bool on_gpu) {
  return group.placement() != (on_gpu ? Placement::kHost : Placement::kDevice);
}

absl::Status CheckMoves(const client::Group& group, WayTo way, const Tensor& tensor) {
  if (tensor.device().is_host()) return absl::OkStatus();
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry ", FormatPath(way()), " is ", tensor.ToString(), why));
  };
  if (!Moves(group, /*on_gpu=*/true)) {
    return refuse(
        absl::StrCat(": the placement of group ", group.name(), " is ", NameOf(group.placement())));
  }
  if (tensor.device() == group.device()) return absl::OkStatus();
  return refuse(absl::StrCat(", and should be on ", group.device().ToString()));
}

absl::StatusOr<Tensor> AllocateFor(client::Group& group, const TensorEntry& entry) {
  const Device device = entry.on_gpu ? group.device() : Device::Host();
  if (entry.on_gpu && (device.is_host() || !Moves(group, /*on_gpu=*/true))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no room for ", entry.ToString(), ": this rank of group ", group.name(), " has none"));
  }
  if (entry.count() == 0) return Tensor(nullptr, entry.type, entry.shape, nullptr, device);
  if (!Moves(group, entry.on_gpu)) return NewHostTensor(entry.type, entry.shape);
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
  if (bytes <= kSmallOnHost || !Moves(group, /*on_gpu=*/false)) {
    return NewHostTensor(DataType::kU8, {bytes});
  }
  return group.Allocate(DataType::kU8, {bytes});
}

}  // namespace cohort::parallel
