// How an error ends the tool: its exit code, one clear line for people, and an object for programs.
#ifndef COHORT_CLIENT_CLI_CONTEXT_ERROR_REPORT_H_
#define COHORT_CLIENT_CLI_CONTEXT_ERROR_REPORT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/cli/context/command_context.h"
#include "client/cli/output/report_json.h"
#include "client/rendezvous/report/report.h"

namespace cohort::cli {

ExitCode ExitCodeOf(const absl::Status& status);

// One line without newline: code, text, and what the text does not say yet of operation, group,
// generation and cause: "ABORTED: member lost (barrier "step" #812; group trainer, generation 3;
// lease_expired, rank 3 (rank-3 on host-a))". `missing` is named when the status is
// DEADLINE_EXCEEDED and the text does not name it.
std::string ErrorLine(const absl::Status& status, const client::ErrorInfo& info,
                      const std::optional<client::MissingReport>& missing);

// {"error":{"code":...,"message":...,"group":...,"generation":...,"operation":...,"cause":{...},
// "missing":{...}}}; unknown fields are left out.
Json ErrorJson(const absl::Status& status, const client::ErrorInfo& info,
               const std::optional<client::MissingReport>& missing);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CONTEXT_ERROR_REPORT_H_
