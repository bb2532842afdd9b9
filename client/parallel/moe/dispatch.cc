#include "client/parallel/moe/dispatch.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/call_deadline.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/moe/routing/moe_agreement.h"
#include "client/parallel/moe/rows/gather_rows.h"
#include "client/parallel/moe/rows/packed_rows.h"

namespace cohort::parallel {
namespace {

using TensorList = absl::InlinedVector<const Tensor*, 8>;

TensorList AllOf(const TokenBatch& batch) {
  TensorList all = {&batch.hidden};
  for (const Tensor& tensor : batch.companions) all.push_back(&tensor);
  for (const Tensor& tensor : batch.extras) all.push_back(&tensor);
  return all;
}

std::string Describe(const TokenBatch& batch, bool asks) {
  std::string text = absl::StrCat(asks ? "asks for sizes" : "knows the sizes",
                                  " and dispatches hidden ", DescribeRows(batch.hidden));
  for (const Tensor& tensor : batch.companions) {
    absl::StrAppend(&text, ", companion ", DescribeRows(tensor));
  }
  for (const Tensor& tensor : batch.extras) {
    absl::StrAppend(&text, ", extra ", DescribeRows(tensor));
  }
  return text;
}

// A fingerprint of everything that Describe tells.
uint32_t BatchFingerprint(const TokenBatch& batch, const TensorList& all, bool asks) {
  Fingerprint fingerprint;
  fingerprint.Add(uint64_t{asks ? 1U : 0U}).Add(uint64_t{batch.companions.size()});
  for (const Tensor* const tensor : all) AddRows(*tensor, fingerprint);
  return FingerprintOf(fingerprint);
}

absl::Status CheckRows(const TokenBatch& batch) {
  if (batch.hidden.dims() == 0) {
    return absl::InvalidArgumentError("hidden has no rows: its shape is []");
  }
  COHORT_RETURN_IF_ERROR(CheckCountable(batch.hidden.type(), batch.hidden.shape()));
  const int64_t rows = batch.hidden.shape()[0];
  if (rows > kMaxOwnNumber) {
    return absl::InvalidArgumentError(absl::StrCat("hidden has ", rows, " rows"));
  }
  const auto check = [rows](const std::vector<Tensor>& tensors, const char* what) -> absl::Status {
    for (size_t i = 0; i < tensors.size(); ++i) {
      COHORT_RETURN_IF_ERROR(CheckCountable(tensors[i].type(), tensors[i].shape()));
      if (tensors[i].dims() > 0 && tensors[i].shape()[0] == rows) continue;
      return absl::InvalidArgumentError(absl::StrCat(what, " ", i, " is ", tensors[i].ToString(),
                                                     ", while hidden has ", rows, " rows"));
    }
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(check(batch.companions, "companion"));
  return check(batch.extras, "extra");
}

// By rank of the group.
absl::StatusOr<client::Sizes> SizesByRank(const client::Group& group, const TokenSizes& sizes,
                                          int sequence_parallel) {
  COHORT_ASSIGN_OR_RETURN(client::Sizes by_rank, SequenceSizes(sizes, sequence_parallel));
  if (static_cast<int>(by_rank.size()) == group.size()) return by_rank;
  return absl::InvalidArgumentError(absl::StrCat(sizes.size(), " sizes, each of ",
                                                 sequence_parallel, " ranks, are not those of ",
                                                 group.size(), " ranks"));
}

absl::Status CheckOwnRows(const client::Group& group, int64_t rows, const client::Sizes& sizes) {
  const int64_t own = sizes[static_cast<size_t>(group.rank())];
  if (rows == own) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("hidden has ", rows, " rows, expected by the sizes: ", own));
}

absl::StatusOr<client::Sizes> GivenSizes(const client::Group& group, const TokenBatch& batch,
                                         const DispatchOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckRows(batch));
  if (!options.sizes.has_value()) return client::Sizes();
  COHORT_ASSIGN_OR_RETURN(client::Sizes sizes,
                          SizesByRank(group, *options.sizes, options.sequence_parallel));
  COHORT_RETURN_IF_ERROR(CheckOwnRows(group, batch.hidden.shape()[0], sizes));
  return sizes;
}

}  // namespace

absl::StatusOr<DispatchedBatch> Dispatch(client::Group& group, const TokenBatch& batch,
                                         const DispatchOptions& options) {
  const client::CallDeadline deadline(options.call);
  absl::StatusOr<client::Sizes> given = GivenSizes(group, batch, options);
  if (!given.ok()) return group.FailCollective(given.status(), deadline.Left());
  DispatchedBatch result;
  const bool asks = !options.sizes.has_value();
  const TensorList all = AllOf(batch);
  const auto text = [&] { return Describe(batch, asks); };
  const Meaning meaning = {BatchFingerprint(batch, all, asks), text};
  if (asks) {
    COHORT_ASSIGN_OR_RETURN(result.sizes,
                            ExchangeAgreed(group, batch.hidden.shape()[0], meaning, deadline));
  } else {
    result.sizes = *std::move(given);
  }
  COHORT_ASSIGN_OR_RETURN(std::vector<Tensor> gathered,
                          GatherRows(group, all, result.sizes, meaning, /*agreed=*/asks, deadline));
  auto next = gathered.begin();
  result.hidden = std::move(*next++);
  const auto companions_end = next + static_cast<std::ptrdiff_t>(batch.companions.size());
  result.companions.assign(std::make_move_iterator(next), std::make_move_iterator(companions_end));
  result.extras.assign(std::make_move_iterator(companions_end),
                       std::make_move_iterator(gathered.end()));
  return result;
}

absl::StatusOr<Tensor> Combine(client::Group& group, const Tensor& hidden, const TokenSizes& sizes,
                               const CombineOptions& options) {
  const client::CallDeadline deadline(options.call);
  const auto prepare = [&]() -> absl::StatusOr<std::pair<client::Sizes, Tensor>> {
    if (hidden.dims() == 0) {
      return absl::InvalidArgumentError("hidden has no rows: its shape is []");
    }
    COHORT_ASSIGN_OR_RETURN(client::Sizes by_rank,
                            SizesByRank(group, sizes, options.sequence_parallel));
    const int64_t rows = SumOf(by_rank);
    if (hidden.shape()[0] != rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("hidden has ", hidden.shape()[0], " rows, expected by the sizes: ", rows));
    }
    Shape shape = hidden.shape();
    shape[0] = by_rank[static_cast<size_t>(group.rank())];
    COHORT_ASSIGN_OR_RETURN(Tensor output, Allocate(group, hidden.type(), shape, hidden.device()));
    return std::make_pair(std::move(by_rank), std::move(output));
  };
  const auto prepared = prepare();
  if (!prepared.ok()) return group.FailCollective(prepared.status(), deadline.Left());
  const auto& [by_rank, output] = *prepared;
  COHORT_RETURN_IF_ERROR(
      group.ReduceScatterV(hidden, output, 0, by_rank, Reduction{}, deadline.Left()));
  return output;
}

}  // namespace cohort::parallel
