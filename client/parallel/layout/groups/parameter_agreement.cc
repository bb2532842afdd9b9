#include "client/parallel/layout/groups/parameter_agreement.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/digest128.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort::parallel {
namespace {

using nlohmann::json;

constexpr size_t kMostText = 600;         // of another rank's text in an error
constexpr size_t kMostValue = 256 << 10;  // of a value that a rank sends after a difference
constexpr size_t kExcerpt = 120;          // of a value in an error
constexpr size_t kBeforeDifference = 40;  // of which so much is before the difference
constexpr int64_t kMostNumber = int64_t{1} << 53;
constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

std::string Dump(const json& value) {
  // Texts of other ranks may not be UTF-8.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Clip(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  return absl::StrCat(text.substr(0, most), "...");
}

absl::Status Unreadable(const client::Group& world, int rank) {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank, " of group ", world.name(),
                   " is in another exchange of objects, or of another version"));
}

struct Answer {
  std::string digest;
  std::string problem;
  int64_t number = 0;
};

absl::StatusOr<Answer> ReadAnswer(const client::Group& world, int rank, absl::string_view bytes) {
  const json value = json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!value.is_object()) return Unreadable(world, rank);
  try {
    const json& number = value.at("number");
    if (!number.is_number_integer() || number < 0 || number > kMostNumber) {
      return Unreadable(world, rank);
    }
    return Answer{value.at("digest"), value.at("problem"), number};
  } catch (const json::exception&) {
    return Unreadable(world, rank);
  }
}

// The part of a value around the first difference.
std::string Excerpt(const std::string& value, size_t difference) {
  if (value.size() <= kExcerpt) return value;
  const size_t begin = difference > kBeforeDifference ? difference - kBeforeDifference : 0;
  if (begin >= value.size()) return absl::StrCat("...", value.substr(value.size() - kExcerpt));
  const std::string part = value.substr(begin, kExcerpt);
  return absl::StrCat(begin == 0 ? "" : "...", part,
                      begin + part.size() == value.size() ? "" : "...");
}

// The difference of `one` and `other`, the values of ranks `first` and `second`.
std::string Difference(const json& one, const json& other, int first, int second) {
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    if (i < one.size() && i < other.size() && one[i] == other[i]) continue;
    if (i >= one.size() || i >= other.size() || one[i].at(0) != other[i].at(0)) {
      const bool first_has = i < one.size();
      return absl::StrCat("rank ", first_has ? first : second, " brings ",
                          (first_has ? one : other)[i].at(0).get<std::string>(), ", rank ",
                          first_has ? second : first, " something else");
    }
    const auto ours = one[i].at(1).get<std::string>();
    const auto theirs = other[i].at(1).get<std::string>();
    const auto parts = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    const auto at = static_cast<size_t>(parts.first - ours.begin());
    return absl::StrCat(one[i].at(0).get<std::string>(), " ", Excerpt(ours, at), " on rank ", first,
                        ", ", Excerpt(theirs, at), " on rank ", second);
  }
  return "in values that are too long to show";
}

// Called by all ranks after the digests of the first rank and of the one at `place` differed: these
// two ranks tell their parameters.
absl::Status ExplainDifference(const Party& party, const Proposal& proposal, size_t place,
                               absl::Duration timeout) {
  const int first = party.RankAt(0);
  const int second = party.RankAt(place);
  json own = json::array();
  if (party.group.rank() == first || party.group.rank() == second) {
    own.push_back({"what", proposal.what});
    for (const Parameter& parameter : proposal.parameters) {
      own.push_back({parameter.name, Clip(parameter.value, kMostValue)});
    }
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all, party.AllGather(Dump(own), timeout));
  const json one = json::parse(all.front(), nullptr, false);
  const json other = json::parse(all[place], nullptr, false);
  std::string difference = "something";
  try {
    difference = Difference(one, other, first, second);
  } catch (const json::exception&) {
  }
  return absl::InvalidArgumentError(absl::StrCat("ranks ", first, " and ", second, " of group ",
                                                 party.group.name(),
                                                 " call different things: ", difference));
}

struct Outcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string text;
};

absl::StatusOr<Outcome> ReadOutcome(const client::Group& world, int rank,
                                    absl::string_view bytes) {
  const json value = json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!value.is_object()) return Unreadable(world, rank);
  try {
    const json& code = value.at("code");
    if (!code.is_number_integer() || code < 0 || code > kLastCode) return Unreadable(world, rank);
    return Outcome{static_cast<absl::StatusCode>(code.get<int>()), value.at("text")};
  } catch (const json::exception&) {
    return Unreadable(world, rank);
  }
}

bool WaitedInVain(absl::StatusCode code) {
  return code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kAborted;
}

}  // namespace

std::string DigestOf(const Proposal& proposal) {
  Digest128 digest;
  digest.Add(proposal.what);
  for (const Parameter& parameter : proposal.parameters) {
    digest.Add(parameter.name);
    digest.Add(parameter.value);
  }
  return digest.ToString();
}

absl::StatusOr<std::vector<std::string>> Party::AllGather(absl::string_view object,
                                                          absl::Duration timeout) const {
  return members.empty() ? group.AllGatherObjects(object, {timeout})
                         : group.AllGatherObjectsOf(members, object, {timeout});
}

absl::StatusOr<int64_t> Agree(const Party& party, const Proposal& proposal,
                              absl::Duration timeout) {
  const json own = {{"digest", DigestOf(proposal)},
                    {"problem", Clip(proposal.problem.message(), kMostText)},
                    {"number", proposal.number}};
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all, party.AllGather(Dump(own), timeout));
  std::vector<Answer> answers;
  for (size_t place = 0; place < all.size(); ++place) {
    const int rank = party.RankAt(place);
    COHORT_ASSIGN_OR_RETURN(answers.emplace_back(), ReadAnswer(party.group, rank, all[place]));
    if (answers.back().problem.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of group ", party.group.name(),
                                                   " cannot make ", proposal.what, ": ",
                                                   answers.back().problem));
  }
  int64_t largest = 0;
  for (size_t place = 0; place < answers.size(); ++place) {
    if (answers[place].digest != answers[0].digest) {
      return ExplainDifference(party, proposal, place, timeout);
    }
    largest = std::max(largest, answers[place].number);
  }
  return largest;
}

absl::Status AgreeOnOutcome(client::Group& world, absl::string_view what, const absl::Status& own,
                            absl::Duration timeout) {
  const json answer = {{"code", static_cast<int>(own.code())},
                       {"text", Clip(own.message(), kMostText)}};
  const absl::StatusOr<std::vector<std::string>> all =
      world.AllGatherObjects(Dump(answer), {timeout});
  if (!all.ok()) {
    absl::Status failed(all.status().code(),
                        absl::StrCat("while making ", what, ": ", all.status().message(),
                                     own.ok() ? "" : "; on this rank: ", own.message()));
    all.status().ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
      failed.SetPayload(type, payload);
    });
    return failed;
  }
  std::vector<Outcome> outcomes;
  RankSet failed;
  int culprit = -1;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    COHORT_ASSIGN_OR_RETURN(outcomes.emplace_back(),
                            ReadOutcome(world, static_cast<int>(rank), (*all)[rank]));
    if (outcomes.back().code == absl::StatusCode::kOk) continue;
    failed.Add(static_cast<int>(rank));
    const bool first = culprit < 0;
    if (first || (WaitedInVain(outcomes[static_cast<size_t>(culprit)].code) &&
                  !WaitedInVain(outcomes.back().code))) {
      culprit = static_cast<int>(rank);
    }
  }
  if (culprit < 0) return absl::OkStatus();
  const Outcome& outcome = outcomes[static_cast<size_t>(culprit)];
  failed.Remove(culprit);
  return absl::Status(
      outcome.code,
      absl::StrCat(
          "rank ", culprit, " of group ", world.name(), " could not make ", what, ": ",
          outcome.text,
          failed.empty() ? "" : absl::StrCat("; nor could ", NameRanks(failed.ToRanges()))));
}

}  // namespace cohort::parallel
