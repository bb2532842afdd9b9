#include "tests/fuzz/scripts/request_script.h"

#include <algorithm>

namespace cohort::coordinator::fuzz {

RequestScript ParseScript(absl::string_view input) {
  RequestScript script;
  if (input.empty()) return script;
  script.world = static_cast<World>(static_cast<uint8_t>(input[0]) % kWorldCount);
  input.remove_prefix(1);
  while (input.size() >= 2 && script.steps.size() < kMaxSteps) {
    ScriptStep step;
    step.action = static_cast<uint8_t>(input[0]) % kActionCount;
    step.manner = static_cast<uint8_t>(input[1]);
    input.remove_prefix(2);
    size_t size = 0;
    for (int shift = 0; shift < 16 && !input.empty(); shift += 8) {
      size |= static_cast<size_t>(static_cast<uint8_t>(input[0])) << shift;
      input.remove_prefix(1);
    }
    step.request = std::string(input.substr(0, size));
    input.remove_prefix(step.request.size());
    script.steps.push_back(std::move(step));
  }
  return script;
}

std::string SerializeScript(const RequestScript& script) {
  std::string input(1, static_cast<char>(script.world));
  for (const ScriptStep& step : script.steps) {
    const size_t size = std::min(step.request.size(), kMaxRequestBytes);
    input.push_back(static_cast<char>(step.action));
    input.push_back(static_cast<char>(step.manner));
    input.push_back(static_cast<char>(size & 0xFF));
    input.push_back(static_cast<char>(size >> 8));
    input.append(step.request, 0, size);
  }
  return input;
}

}  // namespace cohort::coordinator::fuzz
