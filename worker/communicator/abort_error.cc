#include "worker/communicator/abort_error.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/error_ranks.h"

namespace cohort::worker {

absl::Status AbortError(absl::string_view cause) {
  const absl::Status error = absl::AbortedError(cause);
  if (!absl::ConsumePrefix(&cause, "rank ")) return error;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(cause, absl::MaxSplits(' ', 1));
  int rank = 0;
  if (!absl::SimpleAtoi(parts.first, &rank) || rank < 0) return error;
  return absl::StartsWith(parts.second, "gave up") ? error : WithCulprit(error, rank);
}

}  // namespace cohort::worker
