#include "client/cli/commands/tensor_wait_report.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"

namespace cohort::cli {
namespace {

using client::RankReport;
using client::TensorOperation;
using client::TensorWait;
using client::WhoIsMissingReport;

const char* IsOrAre(const std::vector<RankRange>& ranks) {
  return RankSet::FromRanges(ranks).count() == 1 ? " is" : " are";
}

// all_reduce #42, exchange with rank 3
std::string NameOf(const TensorOperation& operation) {
  const absl::string_view name = cohort::NameOf(operation.collective);
  if (operation.number > 0) return absl::StrCat(name, " #", operation.number);
  return absl::StrCat(name, operation.peer < 0 ? "" : absl::StrCat(" with rank ", operation.peer));
}

// The rank's report, with times until now.
std::string FormatDoing(const RankReport& rank) {
  if (!rank.reported.has_value()) return "";
  const client::TensorReport& tensors = rank.tensors;
  if (!tensors.moves_tensors) return "no tensors";
  std::string text;
  if (tensors.open.has_value()) {
    absl::StrAppend(&text, "in ", NameOf(*tensors.open), " for ",
                    ShortDuration(tensors.open->begun + *rank.reported));
    if (tensors.open->state != "running") {
      absl::StrAppend(&text, " (", Printable(tensors.open->state), ")");
    }
    return text;
  }
  if (!tensors.last.has_value()) return "in no operation, after none";
  absl::StrAppend(&text, "in no operation, after ", NameOf(*tensors.last));
  if (tensors.last->ended.has_value()) {
    absl::StrAppend(&text, " (", FormatAge(*tensors.last->ended + *rank.reported), ")");
  }
  return text;
}

std::string FormatReported(const RankReport& rank, const RankSet& unanswered) {
  const std::string age = rank.reported.has_value() ? FormatAge(*rank.reported) : "never";
  return unanswered.Contains(rank.rank) ? absl::StrCat(age, "; asked, no answer") : age;
}

std::string FormatRanks(const WhoIsMissingReport& report, const RankSet& of) {
  const RankSet unanswered = RankSet::FromRanges(report.unanswered);
  Table table({">RANK", "MEMBER", "HOST", "LAST HEARD", "SAYS IT IS", "SAID"});
  for (const RankReport& rank : report.ranks) {
    if (!of.Contains(rank.rank)) continue;
    table.AddRow({absl::StrCat(rank.rank), rank.member.empty() ? "(empty slot)" : rank.member,
                  rank.host, FormatAge(rank.last_heard), FormatDoing(rank),
                  FormatReported(rank, unanswered)});
  }
  return table.empty() ? "" : table.ToString(2);
}

// all_reduce #42: 1 of 3 missing: rank 2; ranks 0-1 are in it; open for 12s
std::string FormatWait(const WhoIsMissingReport& report, const TensorWait& wait) {
  std::string text = absl::StrCat(Printable(wait.operation), ": ");
  const client::MissingReport& missing = wait.missing;
  RankSet named = RankSet::FromRanges(missing.missing);
  if (!missing.missing.empty()) {
    absl::StrAppend(&text, missing.expected_count - missing.arrived_count, " of ",
                    missing.expected_count, " missing: ", NameRanks(missing.missing), "; ");
  } else if (missing.expected_count > 0) {
    absl::StrAppend(&text, "all ", missing.expected_count, " have come; ");
  }
  absl::StrAppend(&text, NameRanks(wait.inside), IsOrAre(wait.inside), " in it");
  if (!wait.waited_for.empty()) {
    absl::StrAppend(&text, ", waiting for ", NameRanks(wait.waited_for));
    for (const int rank : RankSet::FromRanges(wait.waited_for).ToVector()) named.Add(rank);
  }
  absl::StrAppend(&text, "; open for ", ShortDuration(wait.age), "\n");
  if (!wait.mismatch.empty()) {
    absl::StrAppend(&text, "  the ranks disagree: ", Printable(wait.mismatch), "\n");
  }
  for (const int rank : RankSet::FromRanges(report.unanswered).ToVector()) named.Add(rank);
  return text + FormatRanks(report, named);
}

}  // namespace

bool KnowsAll(const WhoIsMissingReport& report) {
  return report.covers_tensors && report.unanswered.empty() && report.unknown.empty();
}

std::string FormatTensorWaits(const WhoIsMissingReport& report) {
  std::string text;
  for (const TensorWait& wait : report.tensor_waits) {
    absl::StrAppend(&text, "\n", FormatWait(report, wait));
  }
  if (!report.covers_tensors) {
    absl::StrAppend(&text, "not known: operations on tensors, of which this coordinator's version ",
                    "knows nothing\n");
  }
  if (!report.unknown.empty()) {
    absl::StrAppend(&text, "not known: what ", NameRanks(report.unknown), IsOrAre(report.unknown),
                    " doing with tensors: never reported\n");
  }
  if (!report.unanswered.empty()) {
    absl::StrAppend(&text, "not known: what ", NameRanks(report.unanswered),
                    IsOrAre(report.unanswered), " doing now: asked, no answer\n");
    if (report.tensor_waits.empty()) {
      absl::StrAppend(&text, FormatRanks(report, RankSet::FromRanges(report.unanswered)));
    }
  }
  return text;
}

}  // namespace cohort::cli
