// What `cohort who-is-missing` says of operations on tensors, which the members report.
#ifndef COHORT_CLIENT_CLI_TENSOR_WAIT_REPORT_H_
#define COHORT_CLIENT_CLI_TENSOR_WAIT_REPORT_H_

#include <string>

#include "client/cli/report_json.h"
#include "client/rendezvous/report.h"

namespace cohort::cli {

// Whether all members have said what they do with tensors, as far as they were asked.
bool KnowsAll(const client::WhoIsMissingReport& report);

// The operations that are open, and the members that say nothing. Empty: neither.
std::string FormatTensorWaits(const client::WhoIsMissingReport& report);
void AddTensorWaits(const client::WhoIsMissingReport& report, Json& json);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TENSOR_WAIT_REPORT_H_
