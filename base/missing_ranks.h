// Errors that say, besides their text, for which ranks a wait was in vain.
#ifndef COHORT_BASE_MISSING_RANKS_H_
#define COHORT_BASE_MISSING_RANKS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/rank_set.h"

namespace cohort {

// Returns `error`, whose text names the ranks as well, with the ranks.
absl::Status WithMissingRanks(absl::Status error, const std::vector<RankRange>& missing);
// DEADLINE_EXCEEDED.
absl::Status MissingRanksError(absl::string_view text, const std::vector<RankRange>& missing);
// Empty for other errors.
std::vector<RankRange> MissingRanksOf(const absl::Status& error);

}  // namespace cohort

#endif  // COHORT_BASE_MISSING_RANKS_H_
