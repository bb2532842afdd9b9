// How durations, sizes, ranks and foreign text look to people.
#ifndef COHORT_CLIENT_CLI_OUTPUT_FORMAT_H_
#define COHORT_CLIENT_CLI_OUTPUT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/text/printable.h"
#include "client/rendezvous/report/report.h"

namespace cohort::cli {

// Two units at most: "0s", "350ms", "4.2s", "42s", "3m12s", "2h5m", "3d4h"; "never" when infinite.
std::string ShortDuration(absl::Duration duration);

// "4.2s ago"; "never" when infinite or absent.
std::string FormatAge(absl::Duration age);
std::string FormatAge(const std::optional<absl::Duration>& age);

// "send to 2 (4.2s ago)"; "" when `what` is empty.
std::string FormatWithAge(const std::string& what, absl::Duration age);

// A client::Member or client::MissingMember: "4.2s ago (attached)" or "never" heard; "1200 in step
// (2.0s ago)" or "" for its progress.
template <typename AnyMember>
std::string FormatLastHeard(const AnyMember& member) {
  return absl::StrCat(FormatAge(member.last_heard), member.attached ? " (attached)" : "");
}
template <typename AnyMember>
std::string FormatProgress(const AnyMember& member) {
  if (member.progress == 0 && member.progress_operation.empty()) return "";
  const std::string operation =
      member.progress_operation.empty() ? "" : absl::StrCat(" in ", member.progress_operation);
  return FormatWithAge(absl::StrCat(member.progress, operation), member.progress_age);
}

// "0 B", "512 B", "1.5 KiB", "20.0 MiB".
std::string FormatBytes(int64_t size_bytes);

// "1 rank", "2 ranks".
std::string Counted(int64_t count, absl::string_view noun);

// "rank 3 (rank-3 on host-a)", as much of it as is known; "" when nothing is.
std::string FormatMember(const std::optional<int>& rank, absl::string_view member,
                         absl::string_view host);

// "lease_expired, rank 3 (rank-3 on host-a), 4.2s ago: detail"; "" when there is no cause.
std::string FormatCause(const client::Cause& cause);

// "the coordinator at 10.0.0.7:7700 cannot be reached (Connection refused); trying for 9.0s more".
std::string FormatAway(const client::AwayReport& away);

// "id 4 by rank-0 on generation 2: removes rank 3, adds worker-9, world size 8".
std::string FormatProposal(const client::ViewProposal& proposal);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_OUTPUT_FORMAT_H_
