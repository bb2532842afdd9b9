// Names of sets of ranks for the coordinator, whose names allow no commas.
#ifndef COHORT_BASE_RANK_SET_NAME_H_
#define COHORT_BASE_RANK_SET_NAME_H_

#include <string>

#include "base/rank_set.h"

namespace cohort {

// A name such as "0+3-7+9"; two sets have different names. If it would be longer than 32
// characters, the name is its digest.
std::string NameOf(const RankSet& ranks);

}  // namespace cohort

#endif  // COHORT_BASE_RANK_SET_NAME_H_
