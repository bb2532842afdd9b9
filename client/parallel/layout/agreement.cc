#include "client/parallel/layout/agreement.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort::parallel {
namespace {

using nlohmann::json;

constexpr size_t kMostText = 600;         // of another rank's words in an error
constexpr size_t kMostValue = 256 << 10;  // of a value that is told after a difference
constexpr size_t kExcerpt = 120;          // of a value in an error
constexpr size_t kBeforeDifference = 40;  // of which so much is equal
constexpr int64_t kMostNumber = int64_t{1} << 53;
constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

// FNV-1a of 128 bits.
class Digest {
 public:
  void Add(absl::string_view text) {
    for (const char c : text) AddByte(static_cast<unsigned char>(c));
    // What ends here does not go on there.
    for (size_t length = text.size(), i = 0; i < sizeof(length); ++i, length >>= 8) {
      AddByte(static_cast<unsigned char>(length & 0xFF));
    }
  }
  std::string ToString() const {
    return absl::StrCat(absl::Hex(static_cast<uint64_t>(state_ >> 64), absl::kZeroPad16),
                        absl::Hex(static_cast<uint64_t>(state_), absl::kZeroPad16));
  }

 private:
  using Word = unsigned __int128;

  void AddByte(unsigned char byte) { state_ = (state_ ^ byte) * kPrime; }

  static constexpr Word kPrime = Word{0x0000000001000000u} << 64 | 0x000000000000013Bu;
  Word state_ = Word{0x6C62272E07BB0142u} << 64 | 0x62B821756295C58Du;
};

std::string Dump(const json& value) {
  // What others wrote may be no UTF-8.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Clip(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  return absl::StrCat(text.substr(0, most), "...");
}

absl::Status Unreadable(const client::Group& world, size_t rank) {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank, " of group ", world.name(),
                   " is in another exchange of objects, or of another version"));
}

struct Told {
  std::string digest;
  std::string problem;
  int64_t number = 0;
};

absl::StatusOr<Told> ReadTold(const client::Group& world, size_t rank, absl::string_view bytes) {
  const json value = json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!value.is_object()) return Unreadable(world, rank);
  try {
    const json& number = value.at("number");
    if (!number.is_number_integer() || number < 0 || number > kMostNumber) {
      return Unreadable(world, rank);
    }
    return Told{value.at("digest"), value.at("problem"), number};
  } catch (const json::exception&) {
    return Unreadable(world, rank);
  }
}

// The part around which two values part.
std::string Excerpt(const std::string& value, size_t difference) {
  if (value.size() <= kExcerpt) return value;
  const size_t begin = difference > kBeforeDifference ? difference - kBeforeDifference : 0;
  if (begin >= value.size()) return absl::StrCat("...", value.substr(value.size() - kExcerpt));
  const std::string part = value.substr(begin, kExcerpt);
  return absl::StrCat(begin == 0 ? "" : "...", part,
                      begin + part.size() == value.size() ? "" : "...");
}

// What `one` and `other`, as they told it, differ in.
std::string Difference(const json& one, const json& other, int rank) {
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    if (i < one.size() && i < other.size() && one[i] == other[i]) continue;
    if (i >= one.size() || i >= other.size() || one[i].at(0) != other[i].at(0)) {
      const bool zero_has = i < one.size();
      return absl::StrCat("rank ", zero_has ? 0 : rank, " brings ",
                          (zero_has ? one : other)[i].at(0).get<std::string>(), ", rank ",
                          zero_has ? rank : 0, " something else");
    }
    const auto ours = one[i].at(1).get<std::string>();
    const auto theirs = other[i].at(1).get<std::string>();
    const auto parts = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    const auto at = static_cast<size_t>(parts.first - ours.begin());
    return absl::StrCat(one[i].at(0).get<std::string>(), " ", Excerpt(ours, at), " on rank 0, ",
                        Excerpt(theirs, at), " on rank ", rank);
  }
  return "what is too long to be told";
}

// Rank 0's and `rank`'s digests differ, which all ranks know: the two say what they have.
absl::Status ExplainDifference(client::Group& world, const Proposal& proposal, int rank,
                               absl::Duration timeout) {
  json own = json::array();
  if (world.rank() == 0 || world.rank() == rank) {
    own.push_back({"what", proposal.what});
    for (const Parameter& parameter : proposal.parameters) {
      own.push_back({parameter.name, Clip(parameter.value, kMostValue)});
    }
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherObjects(Dump(own), {timeout}));
  const json one = json::parse(all.front(), nullptr, false);
  const json other = json::parse(all[static_cast<size_t>(rank)], nullptr, false);
  std::string difference = "something";
  try {
    difference = Difference(one, other, rank);
  } catch (const json::exception&) {
  }
  return absl::InvalidArgumentError(absl::StrCat("ranks 0 and ", rank, " of group ", world.name(),
                                                 " call different things: ", difference));
}

struct Outcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string text;
};

absl::StatusOr<Outcome> ReadOutcome(const client::Group& world, size_t rank,
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
  Digest digest;
  digest.Add(proposal.what);
  for (const Parameter& parameter : proposal.parameters) {
    digest.Add(parameter.name);
    digest.Add(parameter.value);
  }
  return digest.ToString();
}

absl::StatusOr<int64_t> Agree(client::Group& world, const Proposal& proposal,
                              absl::Duration timeout) {
  const json own = {{"digest", DigestOf(proposal)},
                    {"problem", Clip(proposal.problem.message(), kMostText)},
                    {"number", proposal.number}};
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherObjects(Dump(own), {timeout}));
  std::vector<Told> told;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    COHORT_ASSIGN_OR_RETURN(told.emplace_back(), ReadTold(world, rank, all[rank]));
    if (told.back().problem.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of group ", world.name(),
                                                   " cannot make ", proposal.what, ": ",
                                                   told.back().problem));
  }
  int64_t largest = 0;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].digest != told[0].digest) {
      return ExplainDifference(world, proposal, static_cast<int>(rank), timeout);
    }
    largest = std::max(largest, told[rank].number);
  }
  return largest;
}

absl::Status AgreeOnOutcome(client::Group& world, absl::string_view what, const absl::Status& own,
                            absl::Duration timeout) {
  const json told = {{"code", static_cast<int>(own.code())},
                     {"text", Clip(own.message(), kMostText)}};
  const absl::StatusOr<std::vector<std::string>> all =
      world.AllGatherObjects(Dump(told), {timeout});
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
    COHORT_ASSIGN_OR_RETURN(outcomes.emplace_back(), ReadOutcome(world, rank, (*all)[rank]));
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
