// Arbitrary bytes on a framed RPC connection, sent to a whole coordinator through a real socket.
#ifndef COHORT_TESTS_FUZZ_FRAMED_RPC_CHECK_H_
#define COHORT_TESTS_FUZZ_FRAMED_RPC_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tests/fuzz/scripts/framed_rpc_script.h"

namespace cohort::coordinator::fuzz {

struct FramedRpcCounts {
  int64_t answered = 0;
  int64_t refused = 0;
  int64_t closed = 0;  // by the server, because of an invalid frame
};

// Writes the script, and reads frames until the server answers the last call or closes.
//
// Errors: INTERNAL names the violated rule. The server greets, and sends only whole frames. It
// answers no call that was not made, and no call twice. It closes at a broken frame, and only
// there. It answers the last call within ten seconds. A client that is gone leaves nothing behind.
absl::Status CheckFramedRpc(const FramedRpcScript& script, FramedRpcCounts* counts = nullptr);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_FRAMED_RPC_CHECK_H_
