#include "client/cli/context/interrupt.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "base/threads/thread.h"

namespace cohort::cli {
namespace {

// Wakes the listener: to stop it, or because the set function has returned.
constexpr int kWake = SIGUSR1;
constexpr timespec kGracePeriod = {2, 0};

}  // namespace

Interrupt::Interrupt() {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM}) {
    // A process that was started with a signal ignored (a script's background job, nohup) keeps it
    // ignored.
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&signals_, signal);
    }
  }
  sigaddset(&signals_, kWake);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  absl::StatusOr<std::thread> thread = StartThread("cohort-signals", [this] { Listen(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  }
}

Interrupt::~Interrupt() {
  if (!thread_.joinable()) return;
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
}

void Interrupt::Set(std::function<void()> on_interrupt) {
  std::lock_guard<std::mutex> lock(mutex_);
  on_interrupt_ = std::move(on_interrupt);
}

void Interrupt::Listen() {
  int signal = 0;
  if (sigwait(&signals_, &signal) != 0 || signal == kWake) return;
  const pthread_t listener = pthread_self();
  const absl::Status started = StartDetachedThread("cohort-interrupt", [this, listener] {
    // Never unlocked: the process ends while it is held.
    mutex_.lock();
    if (on_interrupt_) on_interrupt_();
    pthread_kill(listener, kWake);
    pause();
  });
  if (started.ok()) sigtimedwait(&signals_, nullptr, &kGracePeriod);
  _exit(128 + signal);
}

}  // namespace cohort::cli
