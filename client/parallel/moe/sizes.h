// How many rows each rank has. Plain arithmetic: every rank that is given the same finds the same.
#ifndef COHORT_CLIENT_PARALLEL_MOE_SIZES_H_
#define COHORT_CLIENT_PARALLEL_MOE_SIZES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// By data rank: the tokens of its batch, as ranks of sequence parallelism share them.
using TokenSizes = std::vector<int64_t>;

// Errors of all: INVALID_ARGUMENT names a number that is out of range: a negative size, or sizes
// whose sum is larger than memory.

// By rank, where `sequence_parallel` neighbouring ranks share the batch of each data rank:
// ceil(n / sequence_parallel), so many times. The rows that make up for a remainder are padding,
// which travels as all rows do: its owner has them in its tensors. Errors: also sequence_parallel
// below 1, or of more ranks than any group has. Source: DPMetadata's sequence-parallel sizes.
absl::StatusOr<client::Sizes> SequenceSizes(const TokenSizes& tokens, int sequence_parallel);

// By rank, how many rows go with chunk number `chunk` when none may have more than `limit`:
// min(limit, n - limit * chunk), and 0 for ranks that are through. They take part all the same.
// With `min_rows` of 1, as upstream, they bring a row of padding instead. Errors: also limit below
// 1, a negative chunk, min_rows not in 0..limit. Source: DPMetadata.chunked_sizes.
absl::StatusOr<client::Sizes> ChunkSizes(const client::Sizes& sizes, int64_t limit, int64_t chunk,
                                         int64_t min_rows = 0);
// How many chunks there are until all ranks are through. Errors: also limit below 1.
absl::StatusOr<int64_t> ChunkCount(const client::Sizes& sizes, int64_t limit);

// How many rows lie before each rank's in a gathered tensor; at last, how many it has in all.
// Source: DPMetadata.cu_tokens_across_sp.
absl::StatusOr<std::vector<int64_t>> Offsets(const client::Sizes& sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_SIZES_H_
