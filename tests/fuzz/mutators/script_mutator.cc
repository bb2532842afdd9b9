#include "tests/fuzz/mutators/script_mutator.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "tests/fuzz/scripts/wire_types.h"

namespace cohort::coordinator::fuzz {
namespace {

size_t Below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

void MutateRequest(Random& random, ScriptStep* step) {
  if (step->action >= kMethodCount) {
    step->request.assign(1, static_cast<char>(random()));
    return;
  }
  const auto request = NewRequest(static_cast<Method>(step->action));
  // A request that parses only in part is mutated as far as it parsed.
  request->ParsePartialFromString(step->request);
  for (size_t n = Below(random, 3) + 1; n > 0; --n) MutateMessage(random, request.get());
  step->request = request->SerializePartialAsString();
  if (step->request.size() > kMaxRequestBytes) step->request.clear();
}

ScriptStep NewStep(Random& random) {
  ScriptStep step;
  step.action = Below(random, kActionCount);
  step.manner = static_cast<uint8_t>(Below(random, kCallers));
  if (Below(random, 4) == 0) step.manner = static_cast<uint8_t>(random()) & ~kRaw;
  MutateRequest(random, &step);
  return step;
}

}  // namespace

void MutateScript(Random& random, RequestScript* script) {
  auto& steps = script->steps;
  if (steps.empty()) {
    steps.push_back(NewStep(random));
    return;
  }
  const size_t at = Below(random, steps.size());
  switch (Below(random, 10)) {
    case 0:
      steps.erase(steps.begin() + at);
      return;
    case 1:
      std::swap(steps[at], steps[Below(random, steps.size())]);
      return;
    case 2:
      script->world = static_cast<World>(Below(random, kWorldCount));
      return;
    case 3: {  // the same from another caller: how rounds come about
      ScriptStep copy = steps[at];
      copy.manner =
          (copy.manner & ~kCallerMask) | static_cast<uint8_t>(Below(random, kCallers + 1));
      steps.insert(steps.begin() + at + 1, std::move(copy));
      break;
    }
    case 4:
      steps[at].manner ^= static_cast<uint8_t>(1u << Below(random, 8));
      return;
    case 5:
    case 6:
      steps.insert(steps.begin() + Below(random, steps.size() + 1), NewStep(random));
      break;
    default:
      MutateRequest(random, &steps[at]);
      return;
  }
  if (steps.size() > kMaxSteps) steps.pop_back();
}

RequestScript CrossScripts(Random& random, const RequestScript& one, const RequestScript& other) {
  RequestScript both;
  both.world = one.world;
  const size_t head = Below(random, one.steps.size() + 1);
  const size_t tail = Below(random, other.steps.size() + 1);
  both.steps.assign(one.steps.begin(), one.steps.begin() + head);
  both.steps.insert(both.steps.end(), other.steps.end() - tail, other.steps.end());
  if (both.steps.size() > kMaxSteps) both.steps.resize(kMaxSteps);
  return both;
}

}  // namespace cohort::coordinator::fuzz
