// The signals by which a daemon is asked to end.
#ifndef COHORT_BASE_DAEMON_END_SIGNALS_H_
#define COHORT_BASE_DAEMON_END_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace cohort {

// Keeps SIGTERM and SIGINT for the one thread that waits for them by sigwait, and ignores SIGPIPE.
// Before any thread is started: all of them inherit the mask.
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
