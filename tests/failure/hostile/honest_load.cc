#include "tests/failure/hostile/honest_load.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace cohort::testing {

HonestLoad::~HonestLoad() { Stop(); }

void HonestLoad::Add(const std::string& kind, std::function<absl::Status()> call,
                     absl::Duration pause) {
  threads_.emplace_back([this, kind, call = std::move(call), pause] { Run(kind, call, pause); });
}

void HonestLoad::Run(const std::string& kind, const std::function<absl::Status()>& call,
                     absl::Duration pause) {
  while (!stop_) {
    const Instant start = Clock::Steady().Now();
    const absl::Status status = call();
    const absl::Duration took = Clock::Steady().Now() - start;
    {
      MutexLock lock(&mutex_);
      Kind& entry = kinds_[kind];
      entry.took.push_back(took);
      if (!status.ok() && entry.error.empty())
        entry.error = absl::StrCat(kind, ": ", status.ToString());
    }
    poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(pause)));
  }
}

std::map<std::string, Latencies> HonestLoad::Take() {
  std::map<std::string, Latencies> result;
  MutexLock lock(&mutex_);
  for (auto& [name, kind] : kinds_) {
    std::vector<absl::Duration> took = std::exchange(kind.took, {});
    std::sort(took.begin(), took.end());
    Latencies& latencies = result[name];
    latencies.count = static_cast<int>(took.size());
    if (took.empty()) continue;
    latencies.p50 = took[took.size() / 2];
    latencies.p99 = took[took.size() * 99 / 100];
    latencies.longest = took.back();
  }
  return result;
}

void HonestLoad::Stop() {
  stop_ = true;
  for (std::thread& thread : std::exchange(threads_, {})) thread.join();
}

std::vector<std::string> HonestLoad::errors() {
  std::vector<std::string> errors;
  MutexLock lock(&mutex_);
  for (const auto& [name, kind] : kinds_) {
    if (!kind.error.empty()) errors.push_back(kind.error);
  }
  return errors;
}

}  // namespace cohort::testing
