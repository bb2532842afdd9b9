// The number of rows of each rank. Plain arithmetic: every rank computes the same from the same
// sizes.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_COUNTS_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_COUNTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// By data rank: the tokens of its batch, which the ranks of sequence parallelism share.
using TokenSizes = std::vector<int64_t>;

// Errors of all: INVALID_ARGUMENT names a number that is out of range: a negative size, or sizes
// whose sum is larger than memory.

// By rank, if `sequence_parallel` neighbouring ranks share the batch of each data rank: ceil(n /
// sequence_parallel) for each of them. The rows above n are padding, which travels like all rows:
// its owner has them in its tensors. Errors: also sequence_parallel below 1, or of more ranks than
// any group has. Source: DPMetadata's sequence-parallel sizes.
absl::StatusOr<client::Sizes> SequenceSizes(const TokenSizes& tokens, int sequence_parallel);

// By rank, the number of rows in chunk number `chunk` if no rank may have more than `limit`:
// min(limit, n - limit * chunk), and 0 for ranks without more rows, which still take part. With a
// `min_rows` of 1, as upstream, these ranks have a row of padding instead. Errors: also limit below
// 1, a negative chunk, min_rows not in 0..limit. Source: DPMetadata.chunked_sizes.
absl::StatusOr<client::Sizes> ChunkSizes(const client::Sizes& sizes, int64_t limit, int64_t chunk,
                                         int64_t min_rows = 0);
// The number of chunks for all rows of all ranks. Errors: also limit below 1.
absl::StatusOr<int64_t> ChunkCount(const client::Sizes& sizes, int64_t limit);

// The number of rows before each rank's in a gathered tensor; the last number is the sum. Source:
// DPMetadata.cu_tokens_across_sp.
absl::StatusOr<std::vector<int64_t>> Offsets(const client::Sizes& sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROWS_ROW_COUNTS_H_
