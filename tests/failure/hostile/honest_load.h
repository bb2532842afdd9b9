// The calls that honest clients make while others attack, and how long each takes.
#ifndef COHORT_TESTS_FAILURE_HOSTILE_HONEST_LOAD_H_
#define COHORT_TESTS_FAILURE_HOSTILE_HONEST_LOAD_H_

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"

namespace cohort::testing {

struct Latencies {
  int count = 0;
  absl::Duration p50, p99, longest;
};

// Thread-compatible. Each kind of call has a thread, which makes one call after the other.
class HonestLoad {
 public:
  // The load is light, so that delays are those of the attack.
  static constexpr absl::Duration kPause = absl::Milliseconds(5);

  ~HonestLoad();
  // Makes `call` until Stop, with `pause` between two calls. The first error of a kind is kept.
  void Add(const std::string& kind, std::function<absl::Status()> call,
           absl::Duration pause = kPause);
  // The calls of each kind that ended since the last Take.
  std::map<std::string, Latencies> Take();
  void Stop();
  // The first error of each kind; empty: none failed.
  std::vector<std::string> errors();

 private:
  struct Kind {
    std::vector<absl::Duration> took;
    std::string error;
  };
  void Run(const std::string& kind, const std::function<absl::Status()>& call,
           absl::Duration pause);

  std::atomic<bool> stop_ = false;
  Mutex mutex_;
  std::map<std::string, Kind> kinds_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_HOSTILE_HONEST_LOAD_H_
