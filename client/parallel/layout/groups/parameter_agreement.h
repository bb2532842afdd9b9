// Checks that all ranks are about to do the same, before any of them begins.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_PARAMETER_AGREEMENT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_PARAMETER_AGREEMENT_H_

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

// The ranks that agree: all ranks of a group, or `members` of it, in ascending order.
struct Party {
  client::Group& group;
  RankList members;  // empty: all

  int RankAt(size_t place) const {
    return members.empty() ? static_cast<int>(place) : members[place];
  }
  // Gathers an object of each rank, in their order. Errors: those of AllGatherObjects.
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
  // Why this rank's own arguments are wrong, or OK.
  absl::Status problem;
  // Not compared; all ranks get the largest number.
  int64_t number = 0;
};

// A digest of all that is compared, in hexadecimal; the same in all processes.
std::string DigestOf(const Proposal& proposal);

// All ranks of `party` call it. Returns the largest number. It takes one exchange of objects of a
// fixed size; only after a difference two ranks tell their parameters. Errors, the same on all
// ranks: INVALID_ARGUMENT (the problem of a rank, which it names; or two ranks that differ, the
// first parameter in which they differ, and both values or the parts around the difference). Those
// of AllGatherObjects.
absl::StatusOr<int64_t> Agree(const Party& party, const Proposal& proposal,
                              absl::Duration timeout);

// All ranks of `world` call it, each with the outcome of its part. OK if all are OK. Errors: the
// error of one rank that failed, the same on all ranks; it names that rank and the others that
// failed. An error other than a wait in vain for other ranks is preferred. Those of
// AllGatherObjects, together with `own` if that is an error.
absl::Status AgreeOnOutcome(client::Group& world, absl::string_view what, const absl::Status& own,
                            absl::Duration timeout);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_PARAMETER_AGREEMENT_H_
