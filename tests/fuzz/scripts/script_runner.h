// Runs a script against a coordinator of its own, and checks the rules that hold for any input.
#ifndef COHORT_TESTS_FUZZ_SCRIPTS_SCRIPT_RUNNER_H_
#define COHORT_TESTS_FUZZ_SCRIPTS_SCRIPT_RUNNER_H_

#include "absl/status/status.h"
#include "tests/fuzz/scripts/request_script.h"

namespace cohort::coordinator::fuzz {

struct ScriptCounts {
  int answered = 0;
  int refused = 0;
  int cancelled = 0;
};

// Errors: INTERNAL names the first violated rule:
//  1. every answer parses as the response of its method;
//  2. no error is INTERNAL, UNKNOWN or without a text; texts have at most 2 KB of valid UTF-8; the
//     error details parse and are small enough to be sent;
//  3. when all callers have gone, no call is parked;
//  4. when all groups are closed as well, no group is left and no byte is held, except by the
//     tenants' own stores;
//  5. the coordinator answers to the end.
absl::Status RunScript(const RequestScript& script, ScriptCounts* counts = nullptr);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SCRIPTS_SCRIPT_RUNNER_H_
