// Scatter: from one rank to all, a part each.
#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/collectives.h"
#include "client/parallel/collectives/keep_alive.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/collectives/results/allocate_result.h"
#include "client/parallel/collectives/shared_timeout.h"

namespace cohort::parallel {
namespace {

absl::Status CheckIsRoot(const client::Group& group, const ScatterOptions& options) {
  if (group.rank() == options.root) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("scatter from root ", options.root, ": rank ",
                                                 group.rank(),
                                                 " is not the root and must pass no tensors"));
}

// Concatenates all parts in one tensor of the group.
absl::StatusOr<Tensor> Join(client::Group& group, absl::Span<const Tensor> parts,
                            const ScatterOptions& options, const SharedTimeout& shared_timeout) {
  const auto wrong = [&](absl::string_view what, const Tensor& tensor) {
    return absl::InvalidArgumentError(
        absl::StrCat("scatter from root ", options.root, ": ", what, tensor.ToString()));
  };
  COHORT_RETURN_IF_ERROR(CheckIsRoot(group, options));
  if (parts.size() != static_cast<size_t>(group.size())) {
    return absl::InvalidArgumentError(absl::StrCat("scatter from root ", options.root, ": ",
                                                   parts.size(), " parts for ", group.size(),
                                                   " ranks"));
  }
  const auto is_other = [&](const Tensor& part) {
    return part.type() != parts[0].type() || part.shape() != parts[0].shape() ||
           part.device() != parts[0].device();
  };
  const auto other = std::find_if(parts.begin(), parts.end(), is_other);
  if (other != parts.end()) {
    return wrong(absl::StrCat("the part of rank 0 is ", parts[0].ToString(), ", that of rank ",
                              other - parts.begin(), " is "),
                 *other);
  }
  COHORT_ASSIGN_OR_RETURN(const TensorSpec whole,
                          AllGatherResult(SpecOf(parts[0]), RankAndSizeOf(group), options.dim));
  COHORT_ASSIGN_OR_RETURN(const int dim, ResolveDim(whole.shape, options.dim));
  COHORT_ASSIGN_OR_RETURN(const Tensor joined,
                          Allocate(group, whole.type, whole.shape, whole.device));
  const int64_t extent = parts[0].shape()[static_cast<size_t>(dim)];
  std::vector<client::TensorCopy> copies;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    COHORT_ASSIGN_OR_RETURN(const Tensor to,
                            joined.Narrow(dim, static_cast<int64_t>(rank) * extent, extent));
    copies.push_back({parts[rank], to});
  }
  COHORT_RETURN_IF_ERROR(group.CopyAll(copies, shared_timeout.Left()));
  return joined;
}

}  // namespace

absl::StatusOr<Tensor> Scatter(client::Group& group, const Tensor& whole,
                               const ScatterOptions& options) {
  absl::StatusOr<TensorSpec> part =
      ScatterResult(SpecOf(whole), RankAndSizeOf(group), options.dim, options.root);
  const absl::Status is_root = CheckIsRoot(group, options);
  if (part.ok() && !is_root.ok()) part = is_root;
  COHORT_ASSIGN_OR_RETURN(const Tensor result,
                          AllocateResult(group, part, options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.Scatter(whole, result, options.dim, options.root, options.call));
  return result;
}

absl::StatusOr<Tensor> Scatter(client::Group& group, absl::Span<const Tensor> parts,
                               const ScatterOptions& options) {
  const SharedTimeout shared_timeout(options.call);
  const absl::StatusOr<Tensor> whole = Join(group, parts, options, shared_timeout);
  ScatterOptions rest = options;
  rest.call = shared_timeout.Left();
  if (!whole.ok()) return group.FailCollectiveAs(whole.status(), rest.call);
  const absl::StatusOr<Tensor> part = Scatter(group, *whole, rest);
  COHORT_RETURN_IF_ERROR(AwaitLastUse(group, *whole, part.status(), options.call));
  return part;
}

absl::StatusOr<Tensor> Scatter(client::Group& group, const TensorSpec& part,
                               const ScatterOptions& options) {
  if (group.rank() == options.root) {
    return group.FailCollectiveAs(
        absl::InvalidArgumentError(
            absl::StrCat("scatter from root ", options.root, ": the root gives no tensor")),
        options.call);
  }
  COHORT_ASSIGN_OR_RETURN(const Tensor result,
                          AllocateResult(group, part, options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.Scatter(Tensor(), result, options.dim, options.root, options.call));
  return result;
}

}  // namespace cohort::parallel
