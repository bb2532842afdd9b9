#include "base/error_ranks.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cohort {
namespace {

constexpr absl::string_view kMissingUrl = "cohort/missing-ranks";
constexpr absl::string_view kCulpritUrl = "cohort/culprit-rank";

}  // namespace

absl::Status WithMissingRanks(absl::Status error, const std::vector<RankRange>& missing) {
  const auto add = [](std::string* out, const RankRange& range) {
    absl::StrAppend(out, range.first, "-", range.last);
  };
  error.SetPayload(kMissingUrl, absl::Cord(absl::StrJoin(missing, ",", add)));
  return error;
}

absl::Status MissingRanksError(absl::string_view text, const std::vector<RankRange>& missing) {
  return WithMissingRanks(absl::DeadlineExceededError(text), missing);
}

std::vector<RankRange> MissingRanksOf(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kMissingUrl);
  if (!payload.has_value()) return {};
  const std::string text(*payload);
  std::vector<RankRange> ranges;
  for (const absl::string_view word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(word, '-');
    RankRange& range = ranges.emplace_back();
    if (!absl::SimpleAtoi(ends.first, &range.first) ||
        !absl::SimpleAtoi(ends.second, &range.last)) {
      return {};
    }
  }
  return ranges;
}

absl::Status WithCulprit(absl::Status error, int rank) {
  error.SetPayload(kCulpritUrl, absl::Cord(absl::StrCat(rank)));
  return error;
}

std::optional<int> CulpritOf(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kCulpritUrl);
  int rank = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return std::nullopt;
  return rank;
}

}  // namespace cohort
