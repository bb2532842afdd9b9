// Starts threads, and reports the limit when the system refuses one.
//
//   COHORT_ASSIGN_OR_RETURN(thread_, StartThread("cohort-alarm", [this] { Run(); }));
//
// std::thread's constructor throws when the process is at a limit, which ends a program that does
// not catch. All threads of the tree start here, and each leaves some that may still start: gRPC
// loses work for good, and its callers hang, when one of its own threads cannot start.
#ifndef COHORT_BASE_THREADS_THREAD_H_
#define COHORT_BASE_THREADS_THREAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort {

// The kernel keeps 15 characters of a thread's name.
void NameThisThread(const std::string& name);

// Returns RESOURCE_EXHAUSTED. The message has the thread's name, the system's error, and the limits
// of the process with their values.
absl::Status ThreadRefused(const std::string& name, const std::system_error& error);

// How many threads this process may have by RLIMIT_NPROC and its cgroup. INT64_MAX: no limit.
int64_t ThreadLimit();
// The number of threads of ThreadLimit that StartThread leaves to gRPC: 16, or 4 for each processor
// if that is more, but at most a quarter of the limit; and `for_calls` more, which a daemon
// reserves for the threads that gRPC starts for calls.
int64_t ThreadsLeftToGrpc();
void ReserveThreadsForCalls(int64_t for_calls);
// Returns OK if more than ThreadsLeftToGrpc may still start. Errors: as ThreadRefused. The kernel
// counts other processes of the user towards RLIMIT_NPROC; this function does not see them.
absl::Status CheckThreadsLeft(const std::string& name);

// Runs `body` once on a new thread with this name. Errors: RESOURCE_EXHAUSTED if the system starts
// no thread, or only those are left that gRPC needs; then `body` is destroyed and does not run.
template <typename Body>
absl::StatusOr<std::thread> StartThread(const std::string& name, Body body) {
  if (absl::Status left = CheckThreadsLeft(name); !left.ok()) return left;
  try {
    return std::thread([name, body = std::move(body)]() mutable {
      NameThisThread(name);
      body();
    });
  } catch (const std::system_error& error) {
    return ThreadRefused(name, error);
  }
}

// Runs `run(argument)` on a new thread that is detached from its first moment. To detach one that
// runs is not safe: glibc's pthread_detach reads the thread's memory after another thread may have
// unmapped it (glibc's bug 19951). Errors: RESOURCE_EXHAUSTED; then `run` does not run.
absl::Status StartDetached(const std::string& name, void* (*run)(void*), void* argument);

// Like StartThread, but the thread is detached: it cannot be joined.
template <typename Body>
absl::Status StartDetachedThread(const std::string& name, Body body) {
  struct Thread {
    std::string name;
    Body body;
  };
  auto thread = std::make_unique<Thread>(Thread{name, std::move(body)});
  const auto run = [](void* argument) -> void* {
    const std::unique_ptr<Thread> thread(static_cast<Thread*>(argument));
    NameThisThread(thread->name);
    thread->body();
    return nullptr;
  };
  absl::Status started = StartDetached(name, run, thread.get());
  if (started.ok()) (void)thread.release();  // the thread has it
  return started;
}

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_THREAD_H_
