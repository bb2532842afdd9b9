// Sets of ranks as parts of names at the coordinator, which allow no commas.
#ifndef COHORT_BASE_RANK_SET_NAME_H_
#define COHORT_BASE_RANK_SET_NAME_H_

#include <string>

#include "base/rank_set.h"

namespace cohort {

// Such as "0+3-7+9". Two sets have two names: where that is longer than 32 characters, the name is
// a digest of it.
std::string NameOf(const RankSet& ranks);

}  // namespace cohort

#endif  // COHORT_BASE_RANK_SET_NAME_H_
