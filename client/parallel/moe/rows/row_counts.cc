#include "client/parallel/moe/rows/row_counts.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

// More ranks than any group has: it bounds the lists.
constexpr int64_t kMostRanks = int64_t{1} << 20;

absl::Status CheckSizes(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a size of ", sizes[rank], " for rank ", rank));
    }
    if (__builtin_add_overflow(sum, sizes[rank], &sum)) {
      return absl::InvalidArgumentError("the sizes' sum is larger than memory");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLimit(int64_t limit) {
  if (limit >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunks of at most ", limit, " rows"));
}

}  // namespace

absl::StatusOr<client::Sizes> SequenceSizes(const TokenSizes& tokens, int sequence_parallel) {
  COHORT_RETURN_IF_ERROR(CheckSizes(tokens));
  if (sequence_parallel < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(sequence_parallel, " ranks that share a batch by sequence parallelism"));
  }
  if (sequence_parallel > kMostRanks / static_cast<int64_t>(std::max<size_t>(tokens.size(), 1))) {
    return absl::InvalidArgumentError(absl::StrCat(tokens.size(), " sizes, each of ",
                                                   sequence_parallel, " ranks, are of more than ",
                                                   kMostRanks, " ranks"));
  }
  if (sequence_parallel == 1) return tokens;
  client::Sizes sizes;
  sizes.reserve(tokens.size() * static_cast<size_t>(sequence_parallel));
  for (const int64_t n : tokens) {
    const int64_t share = n / sequence_parallel + (n % sequence_parallel == 0 ? 0 : 1);
    sizes.insert(sizes.end(), static_cast<size_t>(sequence_parallel), share);
  }
  // Padding may have made the sum too large.
  COHORT_RETURN_IF_ERROR(CheckSizes(sizes));
  return sizes;
}

absl::StatusOr<client::Sizes> ChunkSizes(const client::Sizes& sizes, int64_t limit, int64_t chunk,
                                         int64_t min_rows) {
  COHORT_RETURN_IF_ERROR(CheckSizes(sizes));
  COHORT_RETURN_IF_ERROR(CheckLimit(limit));
  if (chunk < 0) return absl::InvalidArgumentError(absl::StrCat("there is no chunk ", chunk));
  if (min_rows < 0 || min_rows > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("at least ", min_rows, " rows in chunks of at most ", limit));
  }
  client::Sizes rows;
  rows.reserve(sizes.size());
  for (const int64_t n : sizes) {
    const int64_t left = chunk > n / limit ? 0 : n - limit * chunk;
    rows.push_back(std::max(std::min(limit, left), min_rows));
  }
  return rows;
}

absl::StatusOr<int64_t> ChunkCount(const client::Sizes& sizes, int64_t limit) {
  COHORT_RETURN_IF_ERROR(CheckSizes(sizes));
  COHORT_RETURN_IF_ERROR(CheckLimit(limit));
  int64_t most = 0;
  for (const int64_t n : sizes) most = std::max(most, n / limit + (n % limit == 0 ? 0 : 1));
  return most;
}

absl::StatusOr<std::vector<int64_t>> Offsets(const client::Sizes& sizes) {
  COHORT_RETURN_IF_ERROR(CheckSizes(sizes));
  std::vector<int64_t> offsets(sizes.size() + 1, 0);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    offsets[rank + 1] = offsets[rank] + sizes[rank];
  }
  return offsets;
}

}  // namespace cohort::parallel
