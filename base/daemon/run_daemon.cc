#include "base/daemon/run_daemon.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/daemon/descriptor_table.h"
#include "base/daemon/heap_trim.h"
#include "base/memory/memory_limit.h"
#include "base/text/logging.h"
#include "base/threads/thread.h"
#include "base/version.h"
#include "google/protobuf/stubs/logging.h"

namespace cohort {
namespace {

constexpr int kExitStart = 1;
constexpr int kExitConfig = 2;

// Blocks SIGTERM and SIGINT, for the one thread that waits for them with sigwait, and ignores
// SIGPIPE. Call it before any thread is started: all threads inherit the mask.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// The memory holds keys, sessions and values of clients. A limit of one byte also keeps the kernel
// from piping a core dump to a program; it does not look at a limit of 0 then.
void WriteNoCoreDump() {
  const rlimit none = {1, 1};
  (void)setrlimit(RLIMIT_CORE, &none);
}

// gRPC starts some ten threads, and crashes when the system refuses one.
absl::Status CheckThreadLimit() {
  constexpr int64_t kFewestThreads = 16;
  const int64_t limit = ThreadLimit();
  if (limit >= kFewestThreads) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("this process may have ", limit,
                                                   " threads (RLIMIT_NPROC, or pids.max of its "
                                                   "cgroup), and needs ",
                                                   kFewestThreads, " at least"));
}

// Sends SIGTERM to this process when standard input has ended. Errors: those of threads.
absl::Status EndWithStandardInput() {
  return StartDetachedThread("cohort-stdin", [] {
    char buffer[4096];
    ssize_t size = 0;
    do {
      size = read(STDIN_FILENO, buffer, sizeof(buffer));
    } while (size > 0 || (size < 0 && errno == EINTR));
    kill(getpid(), SIGTERM);
  });
}

int Run(int argc, char** argv, Flags& flags, const DaemonOptions& options,
        const std::function<absl::StatusOr<int>(const sigset_t& signals)>& serve) {
  const absl::StatusOr<std::string> text = flags.Parse(argc, argv);
  if (!text.ok()) {
    std::fprintf(stderr, "%s: %s\n", flags.program().c_str(),
                 std::string(text.status().message()).c_str());
    return kExitConfig;
  }
  if (!text->empty()) {
    std::fputs(text->c_str(), stdout);
    return 0;
  }
  // Debian's Abseil is built without NDEBUG: it keeps a graph of all locks, gRPC's included, which
  // grew from 1.0 to 3.4 MiB in a million barriers. Our own locks are not in it
  // (base/threads/mutex.h).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const sigset_t signals = BlockEndSignals();
  MakeRoomForDescriptors();
  LimitKeptMemory(MemoryLimitBytes());
  if (!options.core_dumps) WriteNoCoreDump();
  if (!InitLogging(options.log).ok()) return kExitConfig;
  // protobuf logs every malformed string that a caller sends; the caller gets an error anyway.
  google::protobuf::SetLogHandler(nullptr);
  // --check-config prints all of it.
  const std::string changes = flags.Changes();
  Log(LogLevel::kInfo, flags.program(),
      {{"version", kVersion}, {"config", changes.empty() ? "default" : changes}});
  absl::Status ready = CheckThreadLimit();
  if (ready.ok() && options.until_stdin_closes) ready = EndWithStandardInput();
  const absl::StatusOr<int> code = ready.ok() ? serve(signals) : ready;
  if (code.ok()) return *code;
  Log(LogLevel::kError, "could not start", {{"error", code.status().ToString()}});
  return kExitStart;
}

}  // namespace

int RunDaemon(int argc, char** argv, Flags& flags, const DaemonOptions& options,
              const std::function<absl::StatusOr<int>(const sigset_t& signals)>& serve) {
  const int code = Run(argc, argv, flags, options, serve);
  // If the reader of standard error has stopped reading, the process must end nevertheless.
  if (!FinishLogging(absl::Seconds(1))) _exit(code);
  return code;
}

}  // namespace cohort
