#include "worker/group/flight_recorder/tensor_wait_reporter.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/rank_set.h"
#include "worker/group/collectives/tensor_call.h"

namespace cohort::worker {
namespace {

// The most ranges that the coordinator takes.
constexpr size_t kMostWaitsFor = 64;
// A rank logs a sleep when it ends, at most kLoggedSleep later, even for a rank that came
// meanwhile. In a quarter of a second, more than half is thus logged for ranks that do not come,
// and less for others.
constexpr int kPartAsleep = 2;

client::TensorOperation Describe(const FlightEntry& entry, Instant now) {
  client::TensorOperation operation;
  operation.generation = entry.generation;
  operation.number = entry.number;
  operation.collective = entry.collective;
  operation.state = StateOf(entry);
  operation.peer = entry.root;
  operation.begun = std::max(now - entry.started, absl::ZeroDuration());
  if (!entry.code.has_value()) return operation;
  const Instant ended =
      entry.device_ended.value_or(entry.started + entry.took.value_or(absl::ZeroDuration()));
  operation.ended = std::max(now - ended, absl::ZeroDuration());
  return operation;
}

}  // namespace

void TensorWaitReporter::Start(Source source) {
  MutexLock lock(&mutex_);
  source_ = std::move(source);
}

void TensorWaitReporter::Stop() {
  MutexLock lock(&mutex_);
  source_ = nullptr;
}

client::TensorReport TensorWaitReporter::Report() {
  MutexLock lock(&mutex_);
  client::TensorReport report;
  report.moves_tensors = true;
  if (source_ == nullptr) return report;
  Look look = source_();
  const Instant now = Clock::Steady().Now();
  const FlightEntry* last = nullptr;
  const FlightEntry* open = nullptr;
  for (const FlightEntry& call : look.calls) {
    // A call that an older generation left open ended with it.
    if (call.generation != look.calls.back().generation) continue;
    if (call.number > 0) last = &call;
    if (open == nullptr && !call.code.has_value()) open = &call;
  }
  if (last != nullptr) report.last = Describe(*last, now);
  const int64_t sequence = open == nullptr ? 0 : open->sequence;
  if (open != nullptr) {
    report.open = Describe(*open, now);
    if (sequence == open_) {
      std::map<int, absl::Duration> before;
      for (const WaitedFor& wait : waits_) before[wait.rank] = wait.time;
      RankSet slept_for;
      for (const WaitedFor& wait : look.waits) {
        const absl::Duration grown = wait.time - before[wait.rank];
        if (grown > absl::ZeroDuration() && grown >= (now - at_) / kPartAsleep) {
          slept_for.Add(wait.rank);
        }
      }
      report.waits_for = slept_for.ToRanges();
      if (report.waits_for.size() > kMostWaitsFor) report.waits_for.resize(kMostWaitsFor);
    }
  }
  open_ = sequence;
  at_ = now;
  waits_ = std::move(look.waits);
  return report;
}

}  // namespace cohort::worker
