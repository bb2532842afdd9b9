// The requests of PyTorch's TCPStore clients, as they are on the wire.
//
// A request is one byte for the operation, then its fields. A text is its length in 8 bytes and its
// bytes; a list is its number of elements in 8 bytes and the elements; a number has 8 bytes. All
// are little-endian. PyTorch 2.1 and later open a connection with the operation 0 and kMagic.
// PyTorch 1.13 and 2.0 do not, and have other numbers for the operations.
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_REQUEST_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/port/listener.h"

namespace cohort::coordinator::tcpstore {

inline constexpr uint32_t kMagic = 0x3C85F7CE;

// With the numbers of PyTorch 2.13.
enum class Operation : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDelete = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLen = 16,
  kListKeys = 17,
  kBarrier = 18,
};
// The name of the method of torch.distributed.Store, such as "compare_set".
const char* OperationName(Operation operation);

enum class Dialect {
  kTorch1,  // PyTorch 1.13 and 2.0
  kTorch2,
};

// The texts are parts of the bytes that were read.
struct Request {
  Operation operation = Operation::kValidate;
  std::vector<absl::string_view> keys;
  // By key. compare_set: the expected value, then the new one.
  std::vector<absl::string_view> values;
  int64_t number = 0;  // add: the summand; barrier: the number of clients; ping: to be echoed
};

// Errors name these limits.
struct RequestLimits {
  size_t max_key_bytes = 8192;  // as in PyTorch's server
  size_t max_keys = 131072;     // of one request, as in PyTorch's server
  size_t max_value_bytes = 0;
  size_t max_message_bytes = 0;  // the whole request
};

// Tells TCPStore clients from others.
ProtocolMatch MatchTcpStore(absl::string_view first);
// Precondition: MatchTcpStore has matched them.
Dialect DialectOf(absl::string_view first);

// Reads the requests of one connection. Looks at each byte a few times at most, in however many
// pieces a request comes. Thread-compatible.
class RequestReader {
 public:
  explicit RequestReader(const RequestLimits& limits) : limits_(limits) {}

  // Reads the request at the front of `bytes`. Returns its size, or 0 if more bytes are needed: the
  // next call gets the same bytes and more. Errors: INVALID_ARGUMENT (no such operation, a key that
  // is not UTF-8), UNIMPLEMENTED (watch_key of PyTorch 1.13), RESOURCE_EXHAUSTED (names the limit,
  // its value, and the size that was asked for). The bytes after an error cannot be read.
  absl::StatusOr<size_t> Read(Dialect dialect, absl::string_view bytes, Request* request);
  // The operation of the request whose beginning was read last.
  Operation operation() const { return *operation_; }

 private:
  absl::Status Begin(Dialect dialect, uint8_t byte);
  // Whether all bytes of the request have come.
  absl::StatusOr<bool> Scan(absl::string_view bytes);
  absl::Status Fill(absl::string_view bytes, Request* request) const;

  const RequestLimits limits_;
  std::optional<Operation> operation_;
  size_t at_ = 0;           // the first field that has not come; 0: no request has begun
  bool counted_ = false;    // the count of the list has come
  size_t texts_left_ = 0;
};

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_REQUEST_H_
