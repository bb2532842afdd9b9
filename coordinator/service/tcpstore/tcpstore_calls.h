// TCPStore's requests as calls of the state machine, and its replies as bytes for the client.
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_CALLS_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"

namespace cohort::coordinator::tcpstore {

inline constexpr char kStopWaiting = 0;
inline constexpr char kWaitCancelled = 1;

// The parts of a request that its answer needs.
struct Asked {
  Operation operation = Operation::kValidate;
  std::vector<std::string> keys;  // multi_get
  std::string value;              // compare_set: the new one
  std::string expected;           // compare_set
};

struct AnswerBytes {
  struct Value {
    size_t at = 0;  // so many of the bytes precede it
    Payload payload;
  };
  std::string bytes;
  absl::InlinedVector<Value, 1> values;  // large ones, which are not copied
};

// Whether the answer may be much larger than the request.
inline bool MayBeLarge(Operation operation) {
  return operation == Operation::kMultiGet || operation == Operation::kListKeys;
}
// Whether the state machine answers the operation. It does not see validate, ping, cancel_wait and
// barrier.
bool HasCall(Operation operation);
// The method with which metrics count the operation.
Method MethodOf(Operation operation);
// `client` names the client in answers about calls that wait. Precondition: HasCall.
CallBody MakeCall(const Request& request, const std::string& client, Asked* asked);
// Errors: the reply's, RESOURCE_EXHAUSTED (the answer would need too much memory). TCPStore has no
// errors on the wire, so the connection is to be closed.
absl::Status MakeAnswer(const Asked& asked, const Reply& reply, AnswerBytes* answer);

// Appends a number as it is on the wire.
void AppendNumber(uint64_t number, std::string* bytes);

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_CALLS_H_
