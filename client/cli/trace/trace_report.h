// The text of `cohort trace` about a group's calls, besides the file that it writes.
#ifndef COHORT_CLIENT_CLI_TRACE_TRACE_REPORT_H_
#define COHORT_CLIENT_CLI_TRACE_TRACE_REPORT_H_

#include <cstddef>
#include <string>

#include "client/cli/output/report_json.h"
#include "client/cli/trace/trace_sources.h"
#include "client/collective/trace/merge_flight_records.h"

namespace cohort::cli {

struct TraceReport {
  std::string group;
  std::string output;  // empty: no file
  bool raw_clocks = false;
  size_t top = 0;  // the number of longest waits to show
  // Both outlive the report. The trace is of the records of the sources.
  const TraceSources& sources;
  const client::GroupTrace& trace;
};

std::string FormatReport(const TraceReport& report);
Json ToJson(const TraceReport& report);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TRACE_TRACE_REPORT_H_
