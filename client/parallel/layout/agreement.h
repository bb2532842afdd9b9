// All ranks are about to do the same: whether they are, before any of them begins.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_AGREEMENT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/parallel/layout/grid.h"

namespace cohort::parallel {

// The ranks that agree: all of a group, or `members` of it alone, in ascending order.
struct Party {
  client::Group& group;
  RankList members;  // empty: all

  int RankAt(size_t place) const {
    return members.empty() ? static_cast<int>(place) : members[place];
  }
  // Objects of all of them, in their order. Errors: those of AllGatherObjects.
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view object,
                                                     absl::Duration timeout) const;
};

struct Parameter {
  std::string name;
  std::string value;
};

struct Proposal {
  std::string what;  // such as: the groups "tensor"
  std::vector<Parameter> parameters;
  // Why this rank's own arguments will not do, or OK.
  absl::Status problem;
  // Not compared; all get the largest.
  int64_t number = 0;
};

// Of all that is compared, in hexadecimal; the same in all processes.
std::string DigestOf(const Proposal& proposal);

// All ranks of `party` call it. Returns the largest number. One exchange of objects of a fixed
// size, whatever is compared; only after a difference, two ranks tell what they have. Errors, on
// all ranks the same: INVALID_ARGUMENT (a rank's problem, naming it; or two that differ, the first
// parameter in which they do, and both values, or the parts around where they part). Those of
// AllGatherObjects.
absl::StatusOr<int64_t> Agree(const Party& party, const Proposal& proposal,
                              absl::Duration timeout);

// All ranks of `world` call it, each with what has become of its part. OK where all are. Errors: of
// a rank that did not succeed, the same on all, naming it and those besides; first choice is one
// that did not just wait in vain for others. Those of AllGatherObjects, with `own` where that is
// one.
absl::Status AgreeOnOutcome(client::Group& world, absl::string_view what, const absl::Status& own,
                            absl::Duration timeout);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_AGREEMENT_H_
