// Calls as tests write them.
#ifndef COHORT_COORDINATOR_CORE_TESTING_TEST_CALLS_H_
#define COHORT_COORDINATOR_CORE_TESTING_TEST_CALLS_H_

#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/interface/call.h"

namespace cohort::coordinator {

inline EnterRoundCall Round(RoundKind kind, std::string name = "", std::string value = "") {
  EnterRoundCall call;
  call.kind = kind;
  call.name = std::move(name);
  if (!value.empty()) {
    call.values.resize(1);
    call.values[0].bytes = std::move(value);
    call.values[0].present = true;
  }
  return call;
}
inline EnterRoundCall Barrier(std::string name = "") { return Round(RoundKind::kBarrier, std::move(name)); }
inline SendCall Send(int destination, std::string bytes, std::string tag = "") {
  SendCall call;
  call.destination = destination;
  call.tag = std::move(tag);
  call.value.bytes = std::move(bytes);
  return call;
}
inline ReceiveCall Receive(std::optional<int> source, std::string tag = "") {
  return ReceiveCall{source, std::move(tag)};
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_TEST_CALLS_H_
