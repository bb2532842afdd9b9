// A message of a protocol that travels as plain bytes over TCP.
#ifndef COHORT_TESTS_AMPLIFICATION_RAW_MESSAGE_H_
#define COHORT_TESTS_AMPLIFICATION_RAW_MESSAGE_H_

#include <functional>
#include <optional>
#include <string>

#include "tests/amplification/subject.h"

namespace cohort::amplification {

// A peer is one address. It may open more connections than one.
inline constexpr int kConnections = 8;
// Large requests, one behind the other on one connection.
inline constexpr int kLargeRequests = 4;

struct RawBytes {
  std::string bytes;  // of each connection
  int connections = 1;
  bool then_ends = false;  // the connections end once all is sent
};

// `make` returns the bytes of a form, or absent if the protocol has no such form.
Message RawMessage(const std::string& name, int port,
                   std::function<std::optional<RawBytes>(Form form)> make);

std::string Times(const std::string& bytes, int count);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_RAW_MESSAGE_H_
