// The waits that `cohort who-is-missing` lists: all of them, or those that a probe asks for.
#ifndef COHORT_CLIENT_CLI_COMMANDS_WAIT_FILTER_H_
#define COHORT_CLIENT_CLI_COMMANDS_WAIT_FILTER_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/rendezvous/report/report.h"

namespace cohort::cli {

struct WaitFilter {
  std::optional<absl::Duration> older_than;  // only waits that have been open for this long
  std::optional<int> rank;                   // only waits that this rank holds up

  bool is_set() const { return older_than.has_value() || rank.has_value(); }
  // Removes the other waits from `report`.
  //
  // A rank holds up a wait that misses it. If no rank is missing in an operation on tensors, a rank
  // holds it up if others sleep for it and it does not sleep for a rank itself. A rank holds up a
  // communicator until it has called NCCL's init.
  void Apply(client::WhoIsMissingReport& report) const;
  // The line for a report without waits, without newline: "no wait for rank 3 is open for 30s or
  // longer". `knows_all` is false: a member did not report.
  std::string NoWait(bool knows_all) const;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_WAIT_FILTER_H_
