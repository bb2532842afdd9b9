// The cases to measure, in the words of nccl-tests: the meaning of "size" for each operation, and
// the bandwidth that follows from a time.
#ifndef COHORT_CLIENT_PERF_CASES_H_
#define COHORT_CLIENT_PERF_CASES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/collective/collective.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"

namespace cohort::perf {

// The collectives that can be measured. In kExchange, each rank sends to the next and receives from
// the one before, round the ring.
inline constexpr std::array<Collective, 9> kOperations = {
    Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
    Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
    Collective::kGather,    Collective::kScatter,       Collective::kExchange};

// The collective's name; kExchange has nccl-tests' name, "sendrecv".
absl::string_view OperationName(Collective operation);
std::optional<Collective> FindOperation(absl::string_view name);

// Which of the two ways a group offers: a broadcast has one tensor, an exchange needs two.
bool RunsOutOfPlace(Collective operation);
bool RunsInPlace(Collective operation);

struct Case {
  Collective operation = Collective::kAllReduce;
  DataType type = DataType::kF32;
  Reduction reduction;
  int root = 0;
  // In elements, of the larger of a rank's buffers (gather, scatter: of the root's). A multiple of
  // the number of ranks where there are parts.
  int64_t count = 0;

  int64_t bytes() const { return count * SizeOf(type); }
};

// The case whose size is `bytes`, rounded down to whole elements and equal parts: to parts of a
// multiple of 16 bytes, as in nccl-tests, where they are so large; and at least an element each.
Case MakeCase(Collective operation, int64_t bytes, DataType type, const Reduction& reduction,
              int root, int ranks);

// In 1e9 bytes a second: size by time.
double AlgorithmBandwidth(const Case& run, double seconds);
// The factor from the algorithm's bandwidth to one that can be compared with the hardware's,
// whatever the number of ranks: 2(n-1)/n, (n-1)/n or 1.
double BusFactor(Collective operation, int ranks);

// "8", "64K", "1M", "2G": by powers of 1024. Errors: INVALID_ARGUMENT.
absl::StatusOr<int64_t> ParseSize(absl::string_view text);
// min, min * factor, ... up to max. Errors: INVALID_ARGUMENT.
absl::StatusOr<std::vector<int64_t>> SizeRange(int64_t min, int64_t max, int factor);

}  // namespace cohort::perf

#endif  // COHORT_CLIENT_PERF_CASES_H_
