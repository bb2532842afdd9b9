// The part of `cohort who-is-missing` about operations on tensors, which the members report.
#ifndef COHORT_CLIENT_CLI_COMMANDS_TENSOR_WAIT_REPORT_H_
#define COHORT_CLIENT_CLI_COMMANDS_TENSOR_WAIT_REPORT_H_

#include <string>

#include "client/rendezvous/report/report.h"

namespace cohort::cli {

// Returns whether every member that was asked has reported its operations on tensors.
bool KnowsAll(const client::WhoIsMissingReport& report);

// Lists the open operations and the members that did not report. Empty if there are neither.
std::string FormatTensorWaits(const client::WhoIsMissingReport& report);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_TENSOR_WAIT_REPORT_H_
