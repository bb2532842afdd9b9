#include "tests/benchmark/rendezvous/timing.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"

namespace cohort::benchmark {

void Completion::Done(const absl::Status& status) {
  const SteadyTime now = Now();
  MutexLock lock(&mutex_);
  status_.Update(status);
  last_ = now;
  --remaining_;
}

absl::StatusOr<SteadyTime> Completion::Wait() {
  MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* remaining) { return *remaining <= 0; }, &remaining_));
  if (!status_.ok()) return status_;
  return last_;
}

absl::StatusOr<Sample> TimeFanOut(
    int members, const std::function<void(int, std::function<void(const absl::Status&)>)>& issue) {
  auto completion = std::make_shared<Completion>(members);
  const SteadyTime start = Now();
  for (int member = 0; member < members; ++member) {
    issue(member, [completion](const absl::Status& status) { completion->Done(status); });
  }
  absl::StatusOr<SteadyTime> last = completion->Wait();
  if (!last.ok()) return last.status();
  Sample sample;
  sample.latencies.push_back(absl::FromChrono(*last - start));
  return sample;
}

absl::StatusOr<Sample> TimeHandoffs(int count, const std::function<absl::Status()>& receive,
                                    const std::function<absl::Status()>& send) {
  Mutex mutex;
  int entered = 0;
  std::vector<SteadyTime> received;
  absl::Status receive_status;

  std::thread receiver([&] {
    for (int i = 0; i < count; ++i) {
      {
        MutexLock lock(&mutex);
        entered = i + 1;
      }
      absl::Status status = receive();
      const SteadyTime now = Now();
      MutexLock lock(&mutex);
      receive_status.Update(status);
      received.push_back(now);
    }
  });

  Sample sample;
  absl::Status send_status;
  for (int i = 0; i < count; ++i) {
    {
      auto is_entered = [&] { return entered > i; };
      MutexLock lock(&mutex);
      mutex.Await(absl::Condition(&is_entered));
    }
    absl::SleepFor(absl::Milliseconds(2));
    const SteadyTime start = Now();
    send_status.Update(send());
    auto is_received = [&] { return static_cast<int>(received.size()) > i; };
    MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&is_received));
    sample.latencies.push_back(absl::FromChrono(received[i] - start));
  }
  receiver.join();
  if (!send_status.ok()) return send_status;
  if (!receive_status.ok()) return receive_status;
  return sample;
}

absl::StatusOr<Sample> TimeCallers(int callers, absl::Duration duration,
                                   const std::function<absl::Status(int)>& call) {
  struct Caller {
    std::vector<absl::Duration> latencies;
    absl::Status status;
    std::thread thread;
  };
  std::vector<Caller> all(callers);
  const SteadyTime start = Now();
  const SteadyTime end = start + absl::ToChronoNanoseconds(duration);
  for (int i = 0; i < callers; ++i) {
    all[i].thread = std::thread([&caller = all[i], &call, i, end] {
      SteadyTime before = Now();
      while (before < end && caller.status.ok()) {
        caller.status = call(i);
        const SteadyTime after = Now();
        caller.latencies.push_back(absl::FromChrono(after - before));
        before = after;
      }
    });
  }
  for (Caller& caller : all) caller.thread.join();
  const absl::Duration elapsed = absl::FromChrono(Now() - start);

  Sample sample;
  for (Caller& caller : all) {
    if (!caller.status.ok()) return caller.status;
    sample.latencies.insert(sample.latencies.end(), caller.latencies.begin(),
                            caller.latencies.end());
  }
  sample.ops_per_s = static_cast<double>(sample.latencies.size()) / absl::ToDoubleSeconds(elapsed);
  return sample;
}

}  // namespace cohort::benchmark
