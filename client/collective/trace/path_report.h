// How the ranks of a group reach each other, as one rank stores it in the coordinator for people.
#ifndef COHORT_CLIENT_COLLECTIVE_TRACE_PATH_REPORT_H_
#define COHORT_CLIENT_COLLECTIVE_TRACE_PATH_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::client {

// The group's key under which it is stored.
inline constexpr absl::string_view kPathReportKey = "cohort.paths";

struct PathReport {
  int64_t generation = 0;
  // Groups of ranks that share memory, in order; a rank that shares it with no other is alone. TCP
  // connects the groups.
  std::vector<std::vector<int>> hosts;
  // Why ranks on one host do not share memory, in their words; each text once.
  std::vector<std::string> why_not;
  bool tls = false;  // on the sockets between the groups
};

std::string EncodePathReport(const PathReport& note);
// Absent: the bytes are not a report.
std::optional<PathReport> DecodePathReport(absl::string_view bytes);

// Such as: shared memory: ranks 0-1; ranks 2-3. TCP between all others
std::string FormatPathReport(const PathReport& note);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_TRACE_PATH_REPORT_H_
