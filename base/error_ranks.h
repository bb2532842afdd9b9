// The ranks that an error names in its text, for programs.
#ifndef COHORT_BASE_ERROR_RANKS_H_
#define COHORT_BASE_ERROR_RANKS_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/rank_set.h"

namespace cohort {

// Returns `error` with the ranks that a wait missed.
absl::Status WithMissingRanks(absl::Status error, const std::vector<RankRange>& missing);
// DEADLINE_EXCEEDED.
absl::Status MissingRanksError(absl::string_view text, const std::vector<RankRange>& missing);
// Empty for other errors.
std::vector<RankRange> MissingRanksOf(const absl::Status& error);

// Returns `error` with the rank that caused it.
absl::Status WithCulprit(absl::Status error, int rank);
// Absent for other errors.
std::optional<int> CulpritOf(const absl::Status& error);

}  // namespace cohort

#endif  // COHORT_BASE_ERROR_RANKS_H_
