#include "client/parallel/tensor_map/gather.h"

#include <zlib.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/group_tensors.h"

namespace cohort::parallel {
namespace {

// To sizes that ranks exchange; none is 0.
int64_t DigestOf(absl::string_view bytes) {
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  return int64_t{1} << 32 | static_cast<int64_t>(crc);
}

const Value* ValueAt(const TensorMap& map, const Path& path) {
  const Value* value = nullptr;
  for (const std::string& key : path) {
    if (value == nullptr || value->As<TensorMap>() != nullptr) {
      value = (value == nullptr ? map : *value->As<TensorMap>()).Find(key);
    } else {
      const List* const list = value->As<List>();
      size_t index = 0;
      while (list != nullptr && index < list->size() && absl::StrCat(index) != key) ++index;
      value = list != nullptr && index < list->size() ? &(*list)[index] : nullptr;
    }
    if (value == nullptr) return nullptr;
  }
  return value;
}

// The first rank whose size differs from rank 0's; -1: no such rank.
int64_t FirstOther(const client::Sizes& sizes) {
  const auto other =
      std::find_if(sizes.begin(), sizes.end(), [&sizes](int64_t size) { return size != sizes[0]; });
  return other == sizes.end() ? -1 : other - sizes.begin();
}

}  // namespace

absl::StatusOr<int> PartsFor(const MapGatherOptions& options, WayTo way, const Tensor& tensor) {
  bool in_parts = options.all;
  bool must = false;
  if (!options.overrides.empty()) {
    const Path path = way();
    for (const auto& [of, value] : options.overrides) {
      if (of != path) continue;
      in_parts = value;
      must = value;
    }
  }
  const int parts = options.group == nullptr ? 1 : options.group->size();
  if (!in_parts || (parts == 1 && options.group != nullptr)) return 1;
  const auto refuse = [&way](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("entry ", FormatPath(way()), " cannot go in parts: ", why));
  };
  if (options.group == nullptr) {
    if (must) return refuse("there is no group that has them");
    return 1;
  }
  if (!Moves(*options.group, tensor.device().is_cuda())) {
    if (must) {
      return refuse(absl::StrCat("it is ", tensor.ToString(), ", and the placement of group ",
                                 options.group->name(), " is ",
                                 NameOf(options.group->placement())));
    }
    return 1;
  }
  if (tensor.count() % parts != 0) {
    if (must) {
      return refuse(absl::StrCat(tensor.ToString(), " has ", tensor.count(),
                                 " elements, which do not divide into ", parts));
    }
    return 1;
  }
  return tensor.count() == 0 ? 1 : parts;
}

absl::Status CheckOverrides(const MapGatherOptions& options, const TensorMap& map) {
  for (const auto& [path, in_parts] : options.overrides) {
    if (!in_parts) continue;
    const Value* const value = ValueAt(map, path);
    if (value != nullptr && value->kind() == ValueKind::kTensor) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("entry ", FormatPath(path), ", which is to go in parts, is ",
                     value == nullptr ? "not there" : NameOf(value->kind())));
  }
  return absl::OkStatus();
}

absl::Status CheckAlike(client::Group& group, const std::vector<Tensor>& tensors,
                        const client::CallOptions& options) {
  const auto differ = [&group](int64_t rank, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the tensors to send in parts differ in group ",
                                                   group.name(), ": ranks 0 and ", rank,
                                                   " have different ", what));
  };
  std::string kinds;
  for (const Tensor& tensor : tensors)
    absl::StrAppend(&kinds, tensor.count(), NameOf(tensor.type()));
  COHORT_ASSIGN_OR_RETURN(const client::Sizes alike, group.ExchangeSizes(DigestOf(kinds), options));
  if (FirstOther(alike) >= 0) return differ(FirstOther(alike), "tensors");

  // One round each: all ranks take part in it, even if this rank has an error.
  absl::Status first;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor here = Tensor::Uninitialized(tensors[i].type(), tensors[i].shape());
    const absl::Status copied = group.Copy(tensors[i], here, options);
    const absl::string_view bytes(static_cast<const char*>(here.data()),
                                  static_cast<size_t>(here.bytes()));
    COHORT_ASSIGN_OR_RETURN(const client::Sizes digests,
                            group.ExchangeSizes(copied.ok() ? DigestOf(bytes) : 0, options));
    first.Update(copied);
    if (FirstOther(digests) < 0) continue;
    first.Update(differ(FirstOther(digests), absl::StrCat("elements in tensor ", i, " of them, ",
                                                          tensors[i].ToString())));
  }
  return first;
}

absl::Status AllHaveParts(client::Group& group, const absl::Status& own,
                          absl::Span<const TensorEntry> entries,
                          const client::CallOptions& options) {
  std::string kinds;
  for (const TensorEntry& entry : entries) {
    if (entry.parts > 1) absl::StrAppend(&kinds, entry.ToString());
  }
  const absl::StatusOr<client::Sizes> told =
      group.ExchangeSizes(own.ok() ? DigestOf(kinds) : 0, options);
  COHORT_RETURN_IF_ERROR(own);
  COHORT_RETURN_IF_ERROR(told.status());
  const auto failed = std::find(told->begin(), told->end(), 0);
  if (failed != told->end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", failed - told->begin(), " of group ", group.name(),
                     " did not receive its part; its own error has the reason"));
  }
  const int64_t other = FirstOther(*told);
  if (other < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ranks 0 and ", other, " of group ", group.name(),
                                                 " received parts of other tensors"));
}

}  // namespace cohort::parallel
