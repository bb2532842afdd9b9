#include "client/parallel/pipeline/tensor_slices.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

constexpr size_t kExcerpt = 40;  // of a note in an error

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed description of slices: ", what));
}

// "4:3,8": four slices of [3, 8]; "1:": whole.
absl::StatusOr<Cut> ReadCut(absl::string_view text, const TensorMeta& meta) {
  const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(text, ':');
  Cut cut;
  if (!absl::SimpleAtoi(halves.first, &cut.parts) || cut.parts < 1) return Malformed(text);
  if (cut.parts == 1) {
    if (!halves.second.empty()) return Malformed(text);
    return cut;
  }
  int64_t count = 1;
  if (!halves.second.empty()) {
    for (const absl::string_view one : absl::StrSplit(halves.second, ',')) {
      int64_t extent = 0;
      if (!absl::SimpleAtoi(one, &extent) || extent < 1 ||
          __builtin_mul_overflow(count, extent, &count)) {
        return Malformed(text);
      }
      cut.shape.push_back(extent);
    }
  }
  int64_t bytes = 0;
  if (meta.shape.size() != 1 || __builtin_mul_overflow(count, SizeOf(meta.type), &bytes) ||
      count % cut.parts != 0 || count / cut.parts != meta.shape[0]) {
    return Malformed(absl::StrCat(text, " of ", ToString(meta)));
  }
  return cut;
}

}  // namespace

// "17;4:3,8;1:", or "17" if all tensors travel whole; "": no number, and all whole.
std::string EncodeSlices(const Slices& slices) {
  if (slices.number == 0) return "";
  const auto whole = [](const Cut& cut) { return cut.parts == 1; };
  std::string note = absl::StrCat(slices.number);
  if (std::all_of(slices.cuts.begin(), slices.cuts.end(), whole)) return note;
  for (const Cut& cut : slices.cuts) {
    absl::StrAppend(&note, ";", cut.parts, ":", whole(cut) ? "" : absl::StrJoin(cut.shape, ","));
  }
  return note;
}

absl::StatusOr<Slices> DecodeSlices(absl::string_view note, const std::vector<TensorMeta>& metas) {
  Slices slices;
  if (note.empty()) return slices;
  std::vector<absl::string_view> texts = absl::StrSplit(note, ';');
  if (!absl::SimpleAtoi(texts[0], &slices.number) || slices.number < 1 ||
      slices.number > kMostNumber) {
    return Malformed(note.substr(0, kExcerpt));
  }
  if (texts.size() == 1) return slices;
  texts.erase(texts.begin());
  if (texts.size() != metas.size()) {
    return Malformed(absl::StrCat(texts.size(), " of ", metas.size(), " tensors"));
  }
  slices.cuts.resize(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    COHORT_ASSIGN_OR_RETURN(slices.cuts[i], ReadCut(texts[i], metas[i]));
  }
  return slices;
}

absl::StatusOr<Tensor> SliceOf(client::Group& group, const Tensor& tensor, int parts, int index,
                               const client::CallOptions& options) {
  if (tensor.count() % parts != 0) {
    return absl::InvalidArgumentError(absl::StrCat(tensor.ToString(), " of ", tensor.count(),
                                                   " elements does not divide by ", parts));
  }
  Tensor whole = tensor;
  if (!tensor.contiguous()) {
    COHORT_ASSIGN_OR_RETURN(whole, group.Allocate(tensor.type(), tensor.shape(), tensor.device()));
    COHORT_RETURN_IF_ERROR(group.Copy(tensor, whole, options));
  }
  COHORT_ASSIGN_OR_RETURN(const Tensor flat, whole.Reshape({whole.count()}));
  const int64_t size = flat.count() / parts;
  return flat.Narrow(0, index * size, size);
}

absl::Status GatherSlices(client::Group& tensor_group, const Tensor& slice, const Tensor& whole,
                          const client::CallOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const Tensor flat, whole.Reshape({whole.count()}));
  return tensor_group.AllGather(slice, flat, 0, options);
}

}  // namespace cohort::parallel
