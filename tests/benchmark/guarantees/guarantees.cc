#include "tests/benchmark/guarantees/guarantees.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "tests/benchmark/rendezvous/benchmark_group.h"
#include "tests/benchmark/rendezvous/timing.h"

namespace cohort::benchmark {
namespace {

constexpr double kMiB = 1 << 20;

// Keeps one barrier of each member in flight until all members have done `count`.
class BarrierChain {
 public:
  explicit BarrierChain(BenchmarkGroup& group) : group_(group) {}

  absl::Status Run(int64_t count) {
    Completion completion(group_.size());
    for (int rank = 0; rank < group_.size(); ++rank) Next(rank, count, completion);
    return completion.Wait().status();
  }

 private:
  void Next(int rank, int64_t remaining, Completion& completion) {
    group_.member(rank).async().Barrier(
        options_, [this, rank, remaining, &completion](absl::Status status, client::RoundReport) {
          if (!status.ok() || remaining == 1) {
            completion.Done(status);
          } else {
            Next(rank, remaining - 1, completion);
          }
        });
  }

  BenchmarkGroup& group_;
  const client::RoundOptions options_;
};

// Barriers of some members of a group, and how each ended.
class ParkedBarriers {
 public:
  struct Answer {
    absl::Status status;
    client::RoundReport report;
    SteadyTime when;
  };

  explicit ParkedBarriers(BenchmarkGroup& group) : group_(group) {}

  void Issue(const std::vector<int>& ranks, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    expected_ = ranks.size();
    client::RoundOptions options;
    options.timeout = timeout;
    for (int rank : ranks) {
      group_.member(rank).async().Barrier(
          options, [this](absl::Status status, client::RoundReport report) {
            const SteadyTime now = Now();
            MutexLock lock(&mutex_);
            answers_.push_back({std::move(status), std::move(report), now});
          });
    }
  }

  // Returns all answers, or those that have come when `limit` has passed.
  std::vector<Answer> Collect(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &ParkedBarriers::AllAnswered), limit);
    return answers_;
  }

 private:
  bool AllAnswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return answers_.size() == expected_;
  }

  BenchmarkGroup& group_;
  size_t expected_ = 0;
  Mutex mutex_;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mutex_);
};

std::vector<int> RanksBelow(int end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

std::set<int> RanksIn(const std::vector<RankRange>& ranges) {
  std::set<int> ranks;
  for (const RankRange& range : ranges) {
    for (int rank = range.first; rank <= range.last; ++rank) ranks.insert(rank);
  }
  return ranks;
}

}  // namespace

Row GuaranteeRow(const char* operation, int members, const CoordinatorOptions& options) {
  Row row;
  row["section"] = "guarantees";
  row["operation"] = operation;
  row["members"] = members;
  row["implementation"] = "cohort";
  row["journal"] = options.journal;
  return row;
}

absl::StatusOr<Row> MillionBarriers(const CoordinatorOptions& options, bool quick) {
  constexpr int kMembers = 8;
  const int64_t count = quick ? 50'000 : 1'000'000;
  COHORT_ASSIGN_OR_RETURN(const CoordinatorProcess coordinator, StartCoordinator(options));
  COHORT_ASSIGN_OR_RETURN(const auto group,
                          BenchmarkGroup::Join(coordinator.address, kMembers, kSharedConnections));
  BarrierChain chain(*group);
  COHORT_RETURN_IF_ERROR(chain.Run(10'000));
  COHORT_ASSIGN_OR_RETURN(const int64_t before, ResidentBytes(coordinator.process->pid()));
  const SteadyTime start = Now();
  // Ten readings on the way: memory of a cache levels off, and a leak is a straight line.
  constexpr int kReadings = 10;
  int64_t after = before;
  Row over_time = Row::array();
  for (int i = 0; i < kReadings; ++i) {
    COHORT_RETURN_IF_ERROR(chain.Run(count / kReadings));
    COHORT_ASSIGN_OR_RETURN(after, ResidentBytes(coordinator.process->pid()));
    over_time.push_back(Rounded(static_cast<double>(after) / kMiB, 2));
  }
  const double seconds = absl::ToDoubleSeconds(absl::FromChrono(Now() - start));

  Row row = GuaranteeRow("million-barriers", kMembers, options);
  row["barriers"] = count;
  row["seconds"] = Rounded(seconds, 2);
  row["barriers_per_s"] = Rounded(static_cast<double>(count) / seconds, 0);
  row["resident_mib_after_10k"] = Rounded(static_cast<double>(before) / kMiB, 2);
  row["resident_mib_at_end"] = Rounded(static_cast<double>(after) / kMiB, 2);
  row["resident_mib_over_time"] = over_time;
  row["growth_bytes_per_barrier"] =
      Rounded(static_cast<double>(after - before) / static_cast<double>(count), 3);
  // The allocator may still settle by a little; a leak of one word per barrier would be 8 MB.
  row["holds"] = after - before < std::max<int64_t>(2 << 20, before / 20);
  return row;
}

absl::StatusOr<Row> ParkedCost(const CoordinatorOptions& options, bool quick) {
  const int parked = quick ? 500 : 2000;
  COHORT_ASSIGN_OR_RETURN(const CoordinatorProcess coordinator, StartCoordinator(options));
  COHORT_ASSIGN_OR_RETURN(const int64_t empty, ResidentBytes(coordinator.process->pid()));
  COHORT_ASSIGN_OR_RETURN(
      const auto group, BenchmarkGroup::Join(coordinator.address, parked + 1, kSharedConnections));
  absl::SleepFor(absl::Seconds(2));
  COHORT_ASSIGN_OR_RETURN(const int64_t joined, ResidentBytes(coordinator.process->pid()));
  ParkedBarriers barriers(*group);
  barriers.Issue(RanksBelow(parked), absl::Seconds(60));
  absl::SleepFor(absl::Seconds(3));
  COHORT_ASSIGN_OR_RETURN(const int64_t waiting, ResidentBytes(coordinator.process->pid()));
  // The last member enters the barrier, which answers every parked call.
  COHORT_RETURN_IF_ERROR(group->member(parked).Barrier());
  const size_t answered = barriers.Collect(absl::Seconds(60)).size();

  Row row = GuaranteeRow("parked-cost", parked + 1, options);
  row["parked_calls"] = parked;
  row["connections"] = "shared-8";
  row["resident_mib_empty"] = Rounded(static_cast<double>(empty) / kMiB, 2);
  row["resident_mib_joined"] = Rounded(static_cast<double>(joined) / kMiB, 2);
  row["resident_mib_parked"] = Rounded(static_cast<double>(waiting) / kMiB, 2);
  row["bytes_per_member"] = (joined - empty) / (parked + 1);
  row["bytes_per_parked_call"] = (waiting - joined) / parked;
  row["holds"] = answered == static_cast<size_t>(parked) && (waiting - joined) / parked < 20'000;
  return row;
}

absl::StatusOr<Row> Missing(const CoordinatorOptions& options, bool) {
  constexpr int kMembers = 1000;
  constexpr int kAbsent = 17;
  constexpr absl::Duration kWait = absl::Seconds(2);
  COHORT_ASSIGN_OR_RETURN(const CoordinatorProcess coordinator, StartCoordinator(options));
  COHORT_ASSIGN_OR_RETURN(const auto group,
                          BenchmarkGroup::Join(coordinator.address, kMembers, kSharedConnections));
  std::vector<int> ranks = RanksBelow(kMembers);
  std::mt19937 random(17);
  std::shuffle(ranks.begin(), ranks.end(), random);
  const std::set<int> absent(ranks.begin(), ranks.begin() + kAbsent);
  ranks.erase(ranks.begin(), ranks.begin() + kAbsent);

  ParkedBarriers barriers(*group);
  const SteadyTime start = Now();
  barriers.Issue(ranks, kWait);
  const std::vector<ParkedBarriers::Answer> answers = barriers.Collect(absl::Seconds(30));

  int exact = 0;
  absl::Duration first = absl::InfiniteDuration();
  absl::Duration last = absl::ZeroDuration();
  for (const ParkedBarriers::Answer& answer : answers) {
    const bool named =
        absl::IsDeadlineExceeded(answer.status) && RanksIn(answer.report.missing.missing) == absent;
    if (named) ++exact;
    first = std::min(first, absl::FromChrono(answer.when - start));
    last = std::max(last, absl::FromChrono(answer.when - start));
  }
  Row row = GuaranteeRow("missing", kMembers, options);
  row["absent"] = kAbsent;
  row["wait_ms"] = absl::ToInt64Milliseconds(kWait);
  row["answers"] = answers.size();
  row["answers_naming_exactly_the_absent"] = exact;
  row["first_answer_after_wait_ms"] = Rounded(absl::ToDoubleMilliseconds(first - kWait), 1);
  row["last_answer_after_wait_ms"] = Rounded(absl::ToDoubleMilliseconds(last - kWait), 1);
  row["holds"] = exact == kMembers - kAbsent;
  return row;
}

}  // namespace cohort::benchmark
