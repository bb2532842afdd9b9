#include "client/parallel/layout/groups/form_groups.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"

namespace cohort::parallel {
namespace {

// The coordinator's limit of names.
constexpr size_t kMostNameBytes = 128;

// The time that a factory may take above its timeouts.
constexpr absl::Duration kSendAndAnswer = absl::Seconds(30);

// By base, the first index that this process has not used.
class Indexes {
 public:
  static Indexes& OfProcess() {
    static auto* const indexes = new Indexes();
    return *indexes;
  }

  int64_t NextOf(const std::vector<PlannedGroup>& plan) {
    MutexLock lock(&mutex_);
    int64_t next = 0;
    for (const PlannedGroup& planned : plan) next = std::max(next, next_[planned.base]);
    return next;
  }
  void Used(const std::string& base, int64_t index) {
    MutexLock lock(&mutex_);
    int64_t& next = next_[base];
    next = std::max(next, index + 1);
  }

 private:
  Mutex mutex_;
  std::map<std::string, int64_t> next_ ABSL_GUARDED_BY(mutex_);
};

std::vector<std::string> NamesOf(const client::Group& world, const std::vector<PlannedGroup>& plan,
                                 int64_t first) {
  std::map<std::string, int64_t> next;
  std::vector<std::string> names;
  for (const PlannedGroup& planned : plan) {
    const int64_t index = first + next[planned.base]++;
    Indexes::OfProcess().Used(planned.base, index);
    names.push_back(
        absl::StrCat(world.name(), "@", world.generation(), "/", planned.base, ":", index));
  }
  return names;
}

absl::Status Annotate(const absl::Status& status, const std::string& name, const RankList& ranks) {
  return absl::Status(status.code(),
                      absl::StrCat("group ", name, " of ranks ", absl::StrJoin(ranks, ","), ": ",
                                   status.message()));
}

// Creates this rank's groups in order; returns why the next one failed.
absl::Status FormOwn(int rank, const std::vector<PlannedGroup>& plan,
                     const std::vector<std::string>& names, const std::string& digest,
                     const client::GroupFactory& factory, absl::Duration timeout,
                     std::vector<FormedGroup>* formed) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  for (size_t number = 0; number < plan.size(); ++number) {
    const RankList& ranks = plan[number].ranks;
    const auto own = std::find(ranks.begin(), ranks.end(), rank);
    if (own == ranks.end()) continue;
    client::PlannedRank place;
    place.name = names[number];
    place.rank = static_cast<int>(own - ranks.begin());
    place.world_size = static_cast<int>(ranks.size());
    place.parameters_digest = digest;
    place.timeout = deadline - Clock::Steady().Now();
    if (place.timeout <= absl::ZeroDuration()) {
      return Annotate(absl::DeadlineExceededError("the groups before it took all the time"),
                      place.name, ranks);
    }
    absl::StatusOr<std::unique_ptr<client::Group>> group = factory(place);
    if (!group.ok()) return Annotate(group.status(), place.name, ranks);
    formed->push_back({number, *std::move(group)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBase(absl::string_view base) {
  const bool fits = !base.empty() && std::all_of(base.begin(), base.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '+' ||
           c == '-';
  });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", base, "\" is no name for groups: it may have characters of [A-Za-z0-9._+-]"));
}

namespace {

// Agrees on `plan`, then forms this rank's groups; `own` becomes their outcome.
absl::Status AgreeAndForm(const Party& party, Proposal proposal,
                          const std::vector<PlannedGroup>& plan,
                          const client::GroupFactory& factory, absl::Duration timeout,
                          std::vector<FormedGroup>* formed, absl::Status* own) {
  if (proposal.problem.ok() && factory == nullptr) {
    proposal.problem = absl::InvalidArgumentError("it has no factory of groups");
  }
  proposal.number = Indexes::OfProcess().NextOf(plan);
  COHORT_ASSIGN_OR_RETURN(const int64_t first, Agree(party, proposal, timeout));
  const std::vector<std::string> names = NamesOf(party.group, plan, first);
  for (const std::string& name : names) {
    if (name.size() <= kMostNameBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("the name ", name, " of a group is longer than ",
                                                   kMostNameBytes, " characters"));
  }
  *own = FormOwn(party.group.rank(), plan, names, DigestOf(proposal), factory, timeout, formed);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<FormedGroup>> FormGroups(client::Group& world, Proposal proposal,
                                                    const std::vector<PlannedGroup>& plan,
                                                    const client::GroupFactory& factory,
                                                    absl::Duration timeout) {
  std::vector<FormedGroup> formed;
  absl::Status own;
  const std::string what = proposal.what;
  COHORT_RETURN_IF_ERROR(
      AgreeAndForm({world, {}}, std::move(proposal), plan, factory, timeout, &formed, &own));
  // Another rank may still be in its last group, which waits three times: for the ranks to come,
  // for their connections, and for their devices. A daemon then hands the group over and answers.
  COHORT_RETURN_IF_ERROR(AgreeOnOutcome(world, what, own, 3 * timeout + kSendAndAnswer));
  return formed;
}

absl::StatusOr<FormedGroup> FormGroupOf(const Party& party, Proposal proposal,
                                        const PlannedGroup& planned,
                                        const client::GroupFactory& factory,
                                        absl::Duration timeout) {
  std::vector<FormedGroup> formed;
  absl::Status own;
  COHORT_RETURN_IF_ERROR(
      AgreeAndForm(party, std::move(proposal), {planned}, factory, timeout, &formed, &own));
  COHORT_RETURN_IF_ERROR(own);
  return std::move(formed.front());
}

}  // namespace cohort::parallel
