#include "client/cli/commands/wait_filter.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

bool Contains(const std::vector<RankRange>& ranks, int rank) {
  return RankSet::FromRanges(ranks).Contains(rank);
}

// A rank that sleeps for another one does not hold up the ranks that sleep for it.
bool Sleeps(const client::WhoIsMissingReport& report, int rank) {
  if (Contains(report.unanswered, rank)) return false;
  return std::any_of(report.ranks.begin(), report.ranks.end(), [rank](const auto& said) {
    return said.rank == rank && !said.tensors.waits_for.empty();
  });
}

bool HoldsUp(const client::WhoIsMissingReport& report, const client::TensorWait& wait, int rank) {
  if (!wait.missing.missing.empty()) return Contains(wait.missing.missing, rank);
  return Contains(wait.waited_for, rank) && !Sleeps(report, rank);
}

bool HoldsUp(const client::InitStatus& init, int rank) {
  return std::any_of(init.ranks.begin(), init.ranks.end(), [rank](const auto& one) {
    return one.rank == rank && one.phase != "calling_init";
  });
}

// The time since the first rank reported of those that are not ready.
absl::Duration AgeOf(const client::InitStatus& init) {
  absl::Duration age;
  for (const client::InitRank& rank : init.ranks) age = std::max(age, rank.age);
  return age;
}

template <typename Waits, typename Keep>
void KeepOnly(Waits& waits, const Keep& keep) {
  waits.erase(
      std::remove_if(waits.begin(), waits.end(), [&keep](const auto& wait) { return !keep(wait); }),
      waits.end());
}

}  // namespace

void WaitFilter::Apply(client::WhoIsMissingReport& report) const {
  const absl::Duration least = older_than.value_or(absl::ZeroDuration());
  KeepOnly(report.waits, [&](const client::OpenWait& wait) {
    return wait.age >= least && (!rank.has_value() || Contains(wait.missing.missing, *rank));
  });
  KeepOnly(report.tensor_waits, [&](const client::TensorWait& wait) {
    return wait.age >= least && (!rank.has_value() || HoldsUp(report, wait, *rank));
  });
  KeepOnly(report.inits, [&](const client::InitStatus& init) {
    return AgeOf(init) >= least && (!rank.has_value() || HoldsUp(init, *rank));
  });
}

std::string WaitFilter::NoWait(bool knows_all) const {
  std::string text = "no wait";
  if (rank.has_value()) absl::StrAppend(&text, " for rank ", *rank);
  absl::StrAppend(&text, knows_all ? " is open" : " is known to be open");
  if (older_than.has_value()) {
    absl::StrAppend(&text, " for ", ShortDuration(*older_than), " or longer");
  }
  return text;
}

}  // namespace cohort::cli
