// The signals that ask a daemon to end.
#ifndef COHORT_BASE_DAEMON_END_SIGNALS_H_
#define COHORT_BASE_DAEMON_END_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace cohort {

// Blocks SIGTERM and SIGINT, for the one thread that waits for them with sigwait, and ignores
// SIGPIPE. Call it before any thread is started: all threads inherit the mask.
inline sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_END_SIGNALS_H_
