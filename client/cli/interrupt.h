// SIGINT and SIGTERM of a tool that may hold a seat in a group.
#ifndef COHORT_CLIENT_CLI_INTERRUPT_H_
#define COHORT_CLIENT_CLI_INTERRUPT_H_

#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace cohort::cli {

// On the first signal runs what was set, for at most two seconds or until a second signal, and ends
// the process with 128 + its number. Signals that were ignored when it was made stay so. At most
// one per process, made before any other thread: threads inherit the blocked signals. Where the
// system starts no thread, signals end the process as if there were no Interrupt.
class Interrupt {
 public:
  Interrupt();
  // Stops listening; the signals stay blocked.
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Thread-safe. Does not return once the function set before has begun to run: what it uses stays
  // alive.
  void Set(std::function<void()> on_interrupt);

 private:
  void Listen();

  sigset_t signals_;
  std::mutex mutex_;
  std::function<void()> on_interrupt_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_INTERRUPT_H_
