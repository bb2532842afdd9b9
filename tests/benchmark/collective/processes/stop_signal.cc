#include "tests/benchmark/collective/processes/stop_signal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <initializer_list>

namespace cohort::benchmark {
namespace {

int stop_pipe[2] = {-1, -1};
std::atomic<int> stop_signal{0};

void OnSignal(int signal) {
  const int before = errno;
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);
  [[maybe_unused]] const ssize_t written = write(stop_pipe[1], "", 1);
  errno = before;
}

}  // namespace

void CatchStopSignals() {
  if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

int StopDescriptor() { return stop_pipe[0]; }

int StopSignal() { return stop_signal; }

}  // namespace cohort::benchmark
