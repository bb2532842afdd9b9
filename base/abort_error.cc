#include "base/abort_error.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error_ranks.h"

namespace cohort {
namespace {

// A rank that did one of these met an error, or ended in order, and need not be its cause.
constexpr absl::string_view kReports[] = {"gave up", "could not", "found", "goes on"};

constexpr char kLeft[] = "cohort/left";

}  // namespace

absl::Status AbortError(absl::string_view cause) {
  const absl::Status error = absl::AbortedError(cause);
  if (!absl::ConsumePrefix(&cause, "rank ")) return error;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(cause, absl::MaxSplits(' ', 1));
  int rank = 0;
  if (!absl::SimpleAtoi(parts.first, &rank) || rank < 0) return error;
  for (const absl::string_view report : kReports) {
    if (absl::StartsWith(parts.second, report)) return error;
  }
  return WithCulprit(error, rank);
}

absl::Status LeftError(absl::string_view cause) {
  absl::Status error = AbortError(cause);
  error.SetPayload(kLeft, absl::Cord());
  return error;
}

bool IsLeftError(const absl::Status& error) { return error.GetPayload(kLeft).has_value(); }

}  // namespace cohort
