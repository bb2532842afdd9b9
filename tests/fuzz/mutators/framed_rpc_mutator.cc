#include "tests/fuzz/mutators/framed_rpc_mutator.h"

#include <memory>

#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/framed_rpc/framed_rpc_handler.h"
#include "tests/fuzz/scripts/wire_types.h"

namespace cohort::coordinator::fuzz {
namespace {

// Few, so that calls share them.
constexpr uint64_t kCallCount = 4;

// Returns the method with this number among the methods of framed RPC.
Method MethodOf(uint8_t number) {
  size_t left = number;
  for (size_t i = 0; i < kMethodCount; ++i) {
    const Method method = static_cast<Method>(i);
    if (IsFramedMethod(method) && left-- == 0) return method;
  }
  return Method::kPut;  // for a number without a method
}

void MutateBody(Random& random, FramedRpcStep* step) {
  const std::unique_ptr<google::protobuf::Message> request = NewRequest(MethodOf(step->method));
  request->ParsePartialFromString(step->body);
  for (uint64_t n = random() % 4; n > 0; --n) MutateMessage(random, request.get());
  step->body = request->SerializePartialAsString();
}

FramedRpcStep NewStep(Random& random) {
  FramedRpcStep step;
  step.form = static_cast<uint8_t>(random() % kFormCount);
  step.call = static_cast<uint8_t>(random() % kCallCount);
  step.method = static_cast<uint8_t>(random() % (kMethodCount - 5));
  step.time_left = static_cast<uint8_t>(random() % 16);
  if (step.form < kCancelForm) MutateBody(random, &step);
  return step;
}

}  // namespace

void MutateFramedRpcScript(Random& random, FramedRpcScript* script) {
  std::vector<FramedRpcStep>& steps = script->steps;
  const size_t at = steps.empty() ? 0 : random() % steps.size();
  const uint64_t choice = steps.empty() ? 0 : random() % 8;
  switch (choice) {
    case 0:
    case 1:
      if (steps.size() < kMaxFramedRpcSteps) {
        steps.insert(steps.begin() + static_cast<ptrdiff_t>(at), NewStep(random));
      }
      break;
    case 2:
      steps.erase(steps.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 3:
      if (steps.size() < kMaxFramedRpcSteps) steps.push_back(FramedRpcStep(steps[at]));
      break;
    case 4:
      script->pieces = static_cast<uint8_t>(random());
      break;
    case 5:
      steps[at].form = static_cast<uint8_t>(random() % kFormCount);
      steps[at].call = static_cast<uint8_t>(random() % kCallCount);
      break;
    case 6:
      steps[at].time_left = static_cast<uint8_t>(random());
      break;
    default:
      MutateBody(random, &steps[at]);
      break;
  }
}

}  // namespace cohort::coordinator::fuzz
