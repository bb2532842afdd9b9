// Gloo's two generations of algorithms behind one function.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_GLOO_GLOO_WORK_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_GLOO_GLOO_WORK_H_

#include <gloo/context.h>

#include <functional>
#include <memory>
#include <string>

#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {

// One operation with all its arguments. Throws Gloo's exceptions.
using GlooCall = std::function<void()>;

struct GlooTask {
  std::shared_ptr<gloo::Context> context;
  Work work;
  std::string algorithm;
  // As long as ExtentsOf says. The `output` of a reduce_scatter is as long as its input, as the
  // classes require, and begins with the result.
  float* input = nullptr;
  float* output = nullptr;
};

// The functions on unbound buffers, which PyTorch calls. Empty: the task names none of them.
GlooCall MakeFunctionCall(const GlooTask& task);

// The older classes on bound buffers. They reduce in place, so the input is copied first. Empty:
// the task names none of them.
GlooCall MakeClassCall(const GlooTask& task);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_GLOO_GLOO_WORK_H_
