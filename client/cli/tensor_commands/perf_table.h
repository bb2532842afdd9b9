// A measurement as a line for people, in the columns of nccl-tests, and as JSON.
#ifndef COHORT_CLIENT_CLI_TENSOR_COMMANDS_PERF_TABLE_H_
#define COHORT_CLIENT_CLI_TENSOR_COMMANDS_PERF_TABLE_H_

#include <string>

#include "client/cli/output/report_json.h"
#include "client/perf/measure.h"

namespace cohort::cli {

// Two lines.
std::string PerfTitles();
// One line.
std::string PerfLine(const perf::Row& row, int ranks);

// `memory`: "registered", "plain" or "gpu".
Json PerfJson(const perf::Row& row, int ranks, const std::string& memory);

// The wrong elements of both ways; 0 if nothing was checked.
int64_t WrongOf(const perf::Row& row);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TENSOR_COMMANDS_PERF_TABLE_H_
