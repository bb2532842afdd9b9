// The server's side of the wire format (base/framed_rpc/frame.h), for both kinds of server.
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_SERVER_PROTOCOL_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_SERVER_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/frame.h"

namespace cohort::framed_rpc {

// The methods of a server and its largest request. Thread-compatible.
class ServerProtocol {
 public:
  // `methods`: full names such as cohort.v1.StoreService/Put, by their number on the wire.
  ServerProtocol(std::vector<std::string> methods, size_t max_message_bytes);

  size_t max_message_bytes() const { return max_message_bytes_; }
  // The first bytes that a server sends: the preface, and the frame with the names of its methods.
  const std::string& greeting() const { return greeting_; }
  // How errors call the method; also for a number without a method.
  const std::string& MethodName(uint16_t number) const {
    return number < methods_.size() ? methods_[number] : unknown_;
  }
  // Errors: UNIMPLEMENTED (no method has this number).
  absl::Status CheckMethod(uint16_t number) const;
  // RESOURCE_EXHAUSTED: the body of `frame` is larger than max_message_bytes.
  absl::Status TooLarge(const Frame& frame) const;

 private:
  const std::vector<std::string> methods_;
  const std::string unknown_ = "a framed RPC call";
  const size_t max_message_bytes_;
  std::string greeting_;
};

// Returns the header of the reply to `call`. An OK reply has `message_bytes` bytes behind it, and
// any other reply `*error`, which this sets.
Header MakeReplyHeader(uint32_t call, const absl::Status& status, size_t message_bytes,
                       std::string* error);

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_SERVER_PROTOCOL_H_
