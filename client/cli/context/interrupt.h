// SIGINT and SIGTERM of a tool that may be a member of a group.
#ifndef COHORT_CLIENT_CLI_CONTEXT_INTERRUPT_H_
#define COHORT_CLIENT_CLI_CONTEXT_INTERRUPT_H_

#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace cohort::cli {

// On the first signal it runs the set function, for at most two seconds or until a second signal.
// Then it ends the process with 128 + the signal's number. It leaves signals alone that were
// ignored when it was made. A process makes at most one, before any other thread, because threads
// inherit the blocked signals. If the system starts no thread, signals end the process as usual.
class Interrupt {
 public:
  Interrupt();
  // Stops listening; the signals stay blocked.
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Thread-safe. Once the function that was set before has begun to run, this call does not return,
  // so the objects that the function uses stay alive.
  void Set(std::function<void()> on_interrupt);

 private:
  void Listen();

  sigset_t signals_;
  std::mutex mutex_;
  std::function<void()> on_interrupt_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CONTEXT_INTERRUPT_H_
