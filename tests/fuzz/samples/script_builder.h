// Writes a request script step by step.
#ifndef COHORT_TESTS_FUZZ_SAMPLES_SCRIPT_BUILDER_H_
#define COHORT_TESTS_FUZZ_SAMPLES_SCRIPT_BUILDER_H_

#include <cstdint>
#include <string>

#include "google/protobuf/message.h"
#include "tests/fuzz/scripts/request_script.h"

namespace cohort::coordinator::fuzz {

class ScriptBuilder {
 public:
  explicit ScriptBuilder(World world) { script_.world = world; }

  ScriptBuilder& Call(int caller, Method method, const google::protobuf::Message& request,
                      uint8_t manner = 0) {
    script_.steps.push_back(ScriptStep{static_cast<size_t>(method),
                                       static_cast<uint8_t>(caller | manner),
                                       request.SerializeAsString()});
    return *this;
  }
  ScriptBuilder& All(int callers, Method method, const google::protobuf::Message& request,
                     uint8_t manner = 0) {
    for (int caller = 0; caller < callers; ++caller) Call(caller, method, request, manner);
    return *this;
  }
  ScriptBuilder& Advance(int exponent) {
    script_.steps.push_back(
        ScriptStep{kAdvanceClock, 0, std::string(1, static_cast<char>(exponent))});
    return *this;
  }
  ScriptBuilder& CancelOldest() {
    script_.steps.push_back(ScriptStep{kCancelOldest, 0, ""});
    return *this;
  }
  std::string Build() const { return SerializeScript(script_); }

 private:
  RequestScript script_;
};

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SAMPLES_SCRIPT_BUILDER_H_
