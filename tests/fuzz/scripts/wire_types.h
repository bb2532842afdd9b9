// The messages of a method, found by its name: the tests must cover methods that are added later,
// without a change here.
#ifndef COHORT_TESTS_FUZZ_SCRIPTS_WIRE_TYPES_H_
#define COHORT_TESTS_FUZZ_SCRIPTS_WIRE_TYPES_H_

#include <memory>

#include "coordinator/service/dispatch/method_table.h"
#include "google/protobuf/message.h"

namespace cohort::coordinator::fuzz {

std::unique_ptr<google::protobuf::Message> NewRequest(Method method);
std::unique_ptr<google::protobuf::Message> NewResponse(Method method);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SCRIPTS_WIRE_TYPES_H_
