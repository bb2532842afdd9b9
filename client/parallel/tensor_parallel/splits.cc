#include "client/parallel/tensor_parallel/splits.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/collectives/results/allocate_result.h"
#include "client/parallel/collectives/results/result_shapes.h"
#include "client/parallel/tensor_parallel/views.h"

namespace cohort::parallel {
namespace {

absl::Status Wrong(const Tensor& tensor, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("a split of ", tensor.ToString(), ": ", why));
}

struct EvenParts {
  int dim = 0;
  int64_t extent = 0;  // of one
};

absl::StatusOr<EvenParts> Measure(const Tensor& tensor, int dim, int parts) {
  const absl::StatusOr<int> along = ResolveDim(tensor.shape(), dim);
  if (!along.ok()) return Wrong(tensor, along.status().message());
  const int64_t extent = tensor.shape()[static_cast<size_t>(*along)];
  if (parts >= 1 && extent % parts == 0) return EvenParts{*along, extent / parts};
  return Wrong(tensor, absl::StrCat("the extent of dimension ", *along, ", ", extent,
                                    ", is not a multiple of ", parts));
}

// Allocates for this rank alone: no other rank gets the error.
absl::StatusOr<Tensor> Allocate(client::Group& group, const TensorSpec& spec,
                                const SplitOptions& options) {
  if (options.buffers != nullptr) return options.buffers->Take(spec);
  return parallel::Allocate(group, spec.type, spec.shape, spec.device);
}

absl::StatusOr<Tensor> CopyOf(client::Group& group, const Tensor& view,
                              const SplitOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const Tensor copy, Allocate(group, SpecOf(view), options));
  COHORT_RETURN_IF_ERROR(group.Copy(view, copy, options.call));
  return copy;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> SplitEvenly(const Tensor& tensor, int dim, int parts) {
  COHORT_ASSIGN_OR_RETURN(const EvenParts even, Measure(tensor, dim, parts));
  std::vector<Tensor> views;
  for (int index = 0; index < parts; ++index) {
    COHORT_ASSIGN_OR_RETURN(Tensor view, tensor.Narrow(even.dim, index * even.extent, even.extent));
    views.push_back(std::move(view));
  }
  return views;
}

absl::StatusOr<Tensor> PartOf(const Tensor& tensor, int dim, int parts, int index) {
  COHORT_ASSIGN_OR_RETURN(const EvenParts even, Measure(tensor, dim, parts));
  if (index < 0 || index >= parts) {
    return Wrong(tensor, absl::StrCat("part ", index, " is not in 0..", parts - 1));
  }
  return tensor.Narrow(even.dim, index * even.extent, even.extent);
}

absl::StatusOr<VocabularyRange> VocabularyRangeOf(int64_t vocabulary_size, int rank, int ranks) {
  if (rank < 0 || rank >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", vocabulary_size, ": rank ",
                                                   rank, " is not one of ", ranks));
  }
  if (vocabulary_size < 0 || vocabulary_size % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", vocabulary_size,
                                                   " cannot be cut into ", ranks, " equal ranges"));
  }
  const int64_t part = vocabulary_size / ranks;
  return VocabularyRange{rank * part, (rank + 1) * part};
}

absl::StatusOr<Tensor> SplitDim(client::Group& group, const Tensor& tensor, int dim,
                                const SplitOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const Tensor part, PartOf(tensor, dim, group.size(), group.rank()));
  return CopyOf(group, part, options);
}

absl::StatusOr<Tensor> SplitLastDim(client::Group& group, const Tensor& tensor,
                                    const SplitOptions& options) {
  return SplitDim(group, tensor, -1, options);
}

absl::StatusOr<Tensor> SplitFirstDim(client::Group& group, const Tensor& tensor,
                                     const SplitOptions& options) {
  return SplitDim(group, tensor, 0, options);
}

absl::StatusOr<Tensor> Split1D(client::Group& group, const Tensor& tensor,
                               const SplitOptions& options) {
  if (tensor.count() % group.size() != 0) {
    return Wrong(tensor, absl::StrCat("its ", tensor.count(), " elements are not a multiple of ",
                                      group.size()));
  }
  const int64_t count = tensor.count() / group.size();
  COHORT_ASSIGN_OR_RETURN(
      const Tensor part,
      Allocate(group, TensorSpec{tensor.type(), {count}, tensor.device()}, options));
  const int64_t begin = group.rank() * count;
  COHORT_RETURN_IF_ERROR(
      group.CopyAll(CopiesOfRange(tensor, begin, begin + count, part), options.call));
  return part;
}

absl::StatusOr<Tensor> Gather1D(client::Group& group, const Tensor& part, const Shape& shape,
                                const SplitOptions& options) {
  int64_t count = 1;
  bool fits = true;
  for (const int64_t extent : shape) {
    fits = fits && extent >= 0 && !__builtin_mul_overflow(count, extent, &count);
  }
  if (!fits || count % group.size() != 0 || count / group.size() != part.count()) {
    const absl::Status wrong = absl::InvalidArgumentError(
        absl::StrCat("a gather of ", group.size(), " parts of ", part.count(),
                     " elements: they are not those of a tensor of ", FormatShape(shape)));
    return group.FailCollectiveAs(wrong, options.call);
  }
  COHORT_ASSIGN_OR_RETURN(const Tensor whole,
                          AllocateResult(group, TensorSpec{part.type(), shape, part.device()},
                                         options.buffers, options.call));
  // Concatenates the parts, each in the shape that the ranks gave.
  const Tensor input = Unsqueezed(part);
  Shape joined = input.shape();
  joined[0] = group.size();
  COHORT_ASSIGN_OR_RETURN(const Tensor output, whole.Reshape(std::move(joined)));
  COHORT_RETURN_IF_ERROR(group.AllGather(input, output, 0, options.call));
  return whole;
}

}  // namespace cohort::parallel
