#include "client/parallel/collectives/results/result_shapes.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/collective/collective.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

// Checks one call; its errors name the collective.
class Call {
 public:
  Call(Collective collective, const TensorSpec& input) : collective_(collective), input_(input) {}

  absl::Status Wrong(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(collective_), " of ", input_.ToString(), ": ", why));
  }

  // Checks that the input has a valid shape and a countable number of elements.
  absl::Status Check() const {
    for (const int64_t extent : input_.shape) {
      if (extent < 0) return Wrong("an extent is negative");
    }
    return CheckCount(input_.shape);
  }
  absl::Status CheckRoot(RankAndSize self, int root) const {
    if (root >= 0 && root < self.ranks) return absl::OkStatus();
    return Wrong(absl::StrCat("root ", root, " is not in 0..", self.ranks - 1));
  }
  absl::Status CheckReduction(const Reduction& reduction) const {
    if (!IsReduceOp(static_cast<int>(reduction.op))) {
      return Wrong(absl::StrCat("there is no reduction ", static_cast<int>(reduction.op)));
    }
    const absl::Status status = CheckReducible(input_.type, reduction.op);
    return status.ok() ? status : Wrong(status.message());
  }
  absl::StatusOr<int> Dim(int dim) const {
    COHORT_RETURN_IF_ERROR(Check());
    const absl::StatusOr<int> resolved = ResolveDim(input_.shape, dim);
    if (!resolved.ok()) return Wrong(resolved.status().message());
    return *resolved;
  }
  int64_t ExtentOf(int dim) const { return input_.shape[static_cast<size_t>(dim)]; }

  // The extent of one rank's part.
  absl::StatusOr<int64_t> Part(int dim, int ranks) const {
    const int64_t extent = ExtentOf(dim);
    if (extent % ranks == 0) return extent / ranks;
    return Wrong(absl::StrCat("the extent of dimension ", dim, ", ", extent,
                              ", is not a multiple of the ", ranks, " ranks"));
  }
  // Checks that there is one size for each rank; returns their sum.
  absl::StatusOr<int64_t> Sum(absl::string_view which, RankAndSize self, const Sizes& sizes) const {
    const auto text = [&] { return absl::StrCat(which, " [", absl::StrJoin(sizes, ", "), "]"); };
    if (sizes.size() != static_cast<size_t>(self.ranks)) {
      return Wrong(absl::StrCat(text(), " are ", sizes.size(), " for ", self.ranks, " ranks"));
    }
    int64_t sum = 0;
    for (const int64_t size : sizes) {
      if (size < 0) return Wrong(absl::StrCat(text(), " have a negative one"));
      if (__builtin_add_overflow(sum, size, &sum)) return TooLarge();
    }
    return sum;
  }
  absl::Status CheckExtent(int dim, int64_t expected, absl::string_view whose) const {
    if (ExtentOf(dim) == expected) return absl::OkStatus();
    return Wrong(absl::StrCat("the extent of dimension ", dim, " is ", ExtentOf(dim), ", but the ",
                              whose, " is ", expected));
  }

  // The input with another extent along `dim`.
  absl::StatusOr<TensorSpec> With(int dim, int64_t extent) const {
    TensorSpec result = input_;
    result.shape[static_cast<size_t>(dim)] = extent;
    COHORT_RETURN_IF_ERROR(CheckCount(result.shape));
    return result;
  }
  absl::StatusOr<TensorSpec> Times(int dim, int ranks) const {
    int64_t extent = 0;
    if (__builtin_mul_overflow(ExtentOf(dim), ranks, &extent)) return TooLarge();
    return With(dim, extent);
  }

 private:
  absl::Status TooLarge() const {
    return Wrong("the result has more elements than can be counted");
  }

  absl::Status CheckCount(const Shape& shape) const {
    return CountableBytes(input_.type, shape).has_value() ? absl::OkStatus() : TooLarge();
  }

  const Collective collective_;
  const TensorSpec& input_;
};

absl::StatusOr<TensorSpec> GatheredV(const Call& call, RankAndSize self, int dim,
                                     const Sizes& sizes) {
  COHORT_ASSIGN_OR_RETURN(const int along, call.Dim(dim));
  COHORT_ASSIGN_OR_RETURN(const int64_t sum, call.Sum("sizes", self, sizes));
  const int64_t own = sizes[static_cast<size_t>(self.rank)];
  COHORT_RETURN_IF_ERROR(call.CheckExtent(along, own, "size of this rank"));
  return call.With(along, sum);
}

}  // namespace

std::string TensorSpec::ToString() const {
  return absl::StrCat(NameOf(type), " ", FormatShape(shape), device.is_host() ? "" : " on ",
                      device.is_host() ? "" : device.ToString());
}

TensorSpec SpecOf(const Tensor& tensor) { return {tensor.type(), tensor.shape(), tensor.device()}; }

absl::StatusOr<TensorSpec> AllReduceResult(const TensorSpec& input, const Reduction& reduction) {
  const Call call(Collective::kAllReduce, input);
  COHORT_RETURN_IF_ERROR(call.Check());
  COHORT_RETURN_IF_ERROR(call.CheckReduction(reduction));
  return input;
}

absl::StatusOr<TensorSpec> ReduceResult(const TensorSpec& input, RankAndSize self, int root,
                                        const Reduction& reduction) {
  const Call call(Collective::kReduce, input);
  COHORT_RETURN_IF_ERROR(call.Check());
  COHORT_RETURN_IF_ERROR(call.CheckRoot(self, root));
  COHORT_RETURN_IF_ERROR(call.CheckReduction(reduction));
  return input;
}

absl::StatusOr<TensorSpec> BroadcastResult(const TensorSpec& tensor, RankAndSize self, int root) {
  const Call call(Collective::kBroadcast, tensor);
  COHORT_RETURN_IF_ERROR(call.Check());
  COHORT_RETURN_IF_ERROR(call.CheckRoot(self, root));
  return tensor;
}

absl::StatusOr<TensorSpec> AllGatherResult(const TensorSpec& input, RankAndSize self, int dim) {
  const Call call(Collective::kAllGather, input);
  COHORT_ASSIGN_OR_RETURN(const int along, call.Dim(dim));
  return call.Times(along, self.ranks);
}

absl::StatusOr<TensorSpec> AllGatherVResult(const TensorSpec& input, RankAndSize self, int dim,
                                            const Sizes& sizes) {
  return GatheredV(Call(Collective::kAllGatherV, input), self, dim, sizes);
}

absl::StatusOr<TensorSpec> ReduceScatterResult(const TensorSpec& input, RankAndSize self, int dim,
                                               const Reduction& reduction) {
  const Call call(Collective::kReduceScatter, input);
  COHORT_ASSIGN_OR_RETURN(const int along, call.Dim(dim));
  COHORT_RETURN_IF_ERROR(call.CheckReduction(reduction));
  COHORT_ASSIGN_OR_RETURN(const int64_t part, call.Part(along, self.ranks));
  return call.With(along, part);
}

absl::StatusOr<TensorSpec> ReduceScatterVResult(const TensorSpec& input, RankAndSize self, int dim,
                                                const Sizes& sizes, const Reduction& reduction) {
  const Call call(Collective::kReduceScatterV, input);
  COHORT_ASSIGN_OR_RETURN(const int along, call.Dim(dim));
  COHORT_RETURN_IF_ERROR(call.CheckReduction(reduction));
  COHORT_ASSIGN_OR_RETURN(const int64_t sum, call.Sum("sizes", self, sizes));
  COHORT_RETURN_IF_ERROR(call.CheckExtent(along, sum, "sum of the sizes"));
  return call.With(along, sizes[static_cast<size_t>(self.rank)]);
}

absl::StatusOr<TensorSpec> GatherResult(const TensorSpec& input, RankAndSize self, int dim,
                                        int root) {
  const Call call(Collective::kGather, input);
  COHORT_RETURN_IF_ERROR(call.CheckRoot(self, root));
  COHORT_ASSIGN_OR_RETURN(const int along, call.Dim(dim));
  return call.Times(along, self.ranks);
}

absl::StatusOr<TensorSpec> GatherVResult(const TensorSpec& input, RankAndSize self, int dim,
                                         const Sizes& sizes, int root) {
  const Call call(Collective::kGatherV, input);
  COHORT_RETURN_IF_ERROR(call.CheckRoot(self, root));
  return GatheredV(call, self, dim, sizes);
}

absl::StatusOr<TensorSpec> ScatterResult(const TensorSpec& whole, RankAndSize self, int dim,
                                         int root) {
  const Call call(Collective::kScatter, whole);
  COHORT_RETURN_IF_ERROR(call.CheckRoot(self, root));
  COHORT_ASSIGN_OR_RETURN(const int along, call.Dim(dim));
  COHORT_ASSIGN_OR_RETURN(const int64_t part, call.Part(along, self.ranks));
  return call.With(along, part);
}

absl::StatusOr<TensorSpec> AllToAllResult(const TensorSpec& input, RankAndSize self) {
  const Call call(Collective::kAllToAll, input);
  COHORT_RETURN_IF_ERROR(call.Dim(0).status());
  COHORT_RETURN_IF_ERROR(call.Part(0, self.ranks).status());
  return input;
}

absl::StatusOr<TensorSpec> AllToAllVResult(const TensorSpec& input, RankAndSize self,
                                           const Sizes& input_sizes, const Sizes& output_sizes) {
  const Call call(Collective::kAllToAllV, input);
  COHORT_RETURN_IF_ERROR(call.Dim(0).status());
  COHORT_ASSIGN_OR_RETURN(const int64_t sent, call.Sum("input sizes", self, input_sizes));
  COHORT_RETURN_IF_ERROR(call.CheckExtent(0, sent, "sum of the input sizes"));
  COHORT_ASSIGN_OR_RETURN(const int64_t received, call.Sum("output sizes", self, output_sizes));
  return call.With(0, received);
}

}  // namespace cohort::parallel
