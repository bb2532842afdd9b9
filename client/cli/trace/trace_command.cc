#include "client/cli/trace/trace_command.h"

#include <algorithm>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "client/cli/trace/trace_report.h"
#include "client/cli/trace/trace_sources.h"
#include "client/collective/trace/chrome_trace.h"
#include "client/collective/trace/flight_record.h"
#include "client/collective/trace/merge_flight_records.h"

namespace cohort::cli {
namespace {

struct Flags {
  TraceRequest request;
  std::string output;
  std::string records;
  bool raw_clocks = false;
  size_t top = 10;
};

absl::StatusOr<ExitCode> Trace(Context& context, const Flags& flags) {
  if (flags.request.offline && flags.request.workers.empty() && flags.request.files.empty()) {
    return absl::InvalidArgumentError("--offline needs a --worker or a --file");
  }
  COHORT_ASSIGN_OR_RETURN(const TraceSources sources, FindRecords(context, flags.request));
  if (!flags.records.empty()) {
    COHORT_RETURN_IF_ERROR(client::WriteFlightRecords(flags.records, sources.records));
  }
  const client::GroupTrace trace = client::PutTogether(sources.records, !flags.raw_clocks);
  // An empty file would look like a group that did nothing.
  const bool writes = !flags.output.empty() && !trace.ranks.empty();
  if (writes) COHORT_RETURN_IF_ERROR(WriteFile(flags.output, client::ChromeTrace(trace)));
  const TraceReport report = {
      flags.request.group, writes ? flags.output : "", flags.raw_clocks, flags.top, sources, trace};
  context.Print(ToJson(report), FormatReport(report));
  const bool is_absent =
      std::any_of(trace.calls.begin(), trace.calls.end(),
                  [](const client::TraceCall& call) { return !call.absent.empty(); });
  return sources.missing.empty() && !is_absent ? ExitCode::kOk : ExitCode::kMissing;
}

}  // namespace

void AddTraceCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      parent, context, "trace",
      "The last calls of all ranks of a group, as one trace for chrome://tracing or Perfetto: "
      "the clocks of their hosts aligned, the same call linked on all of them. Names the calls in "
      "which ranks waited longest, and the late ranks; exits with 3 when a rank's record is "
      "missing, or a "
      "rank has not come to a call",
      "cohort trace weights --output trace.json\n"
      "cohort trace weights --records here.json             # where other hosts cannot reach the "
      "worker\n"
      "cohort trace weights --file here.json -o trace.json  # with the records of that host",
      [&context, flags] { return Trace(context, *flags); });
  command->add_option("GROUP", flags->request.group, "name of the group")->required();
  command->add_option("-o,--output", flags->output, "the trace (default: only the summary)");
  command->add_option(
      "--worker", flags->request.workers,
      "a worker to ask, in place of those that the coordinator knows of; repeatable");
  command->add_option("--file", flags->request.files,
                      "records that a process, or --records, has written; repeatable");
  command->add_flag("--offline", flags->request.offline,
                    "the coordinator is not asked: only each --worker and --file");
  command->add_option("--records", flags->records, "a file for the records, for --file elsewhere");
  command->add_flag("--raw-clocks", flags->raw_clocks,
                    "times as the hosts' calendars have them, not aligned");
  command->add_option("--top", flags->top, "how many of the longest waits are named (default: 10)")
      ->check(WholeNumber(0));
}

}  // namespace cohort::cli
