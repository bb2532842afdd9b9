// Takes a share of one processor until it is killed, like a neighbour on the same machine. It works
// and sleeps in periods whose lengths come from a seed, and touches little memory.
//
//   processor_load --share 0.3 --seed 1
#include <time.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "CLI/CLI.hpp"

namespace cohort::benchmark {
namespace {

// Returns processor time of this process, not wall time. With other processes running, the load
// gets less and does not catch up.
std::chrono::nanoseconds ProcessorTime() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

[[noreturn]] void Run(double share, uint32_t seed) {
  std::mt19937 random(seed);
  // One period of work and of the sleep after it, in milliseconds: from less than one time slice of
  // the kernel to several.
  std::uniform_real_distribution<double> slice(1, 20);
  while (true) {
    const std::chrono::duration<double, std::milli> length(slice(random));
    const auto end = ProcessorTime() + length * share;
    while (ProcessorTime() < end) {
    }
    std::this_thread::sleep_for(length * (1 - share));
  }
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  double share = 0.3;
  uint32_t seed = 1;
  CLI::App app("Takes a share of one processor");
  app.add_option("--share", share, "of one processor")->check(CLI::Range(0.01, 1.0));
  app.add_option("--seed", seed, "of the lengths of its time slices");
  CLI11_PARSE(app, argc, argv);
  cohort::benchmark::Run(share, seed);
}
