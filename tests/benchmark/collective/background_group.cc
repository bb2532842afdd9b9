#include "tests/benchmark/collective/background_group.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {
namespace {

constexpr int kId = 1;
// Some ten milliseconds of small calls: so often its thread looks whether it shall rest.
constexpr int64_t kIterations = 20'000;

}  // namespace

absl::StatusOr<std::unique_ptr<BackgroundGroup>> BackgroundGroup::Start(
    const ImplementationOptions& options) {
  ImplementationOptions two = options;
  two.members = 2;
  two.names = {"cohort"};
  two.scratch = options.scratch + "/background_group";
  std::error_code error;
  std::filesystem::create_directory(two.scratch, error);
  if (error) {
    return absl::UnavailableError("cannot make " + two.scratch + ": " + error.message());
  }
  Implementations implementations = MakeImplementations(two);
  MemberProcesses& processes = *implementations.processes.front();
  COHORT_RETURN_IF_ERROR(processes.Start());
  const benchmark::Work work = {Collective::kAllReduce, 1 << 10, Memory::kRegistered, ""};
  COHORT_RETURN_IF_ERROR(processes.Prepare(kId, work));
  return absl::WrapUnique(new BackgroundGroup(std::move(implementations)));
}

BackgroundGroup::~BackgroundGroup() {
  {
    MutexLock lock(&mutex_);
    wanted_ = State::kOver;
  }
  thread_.join();
}

absl::Status BackgroundGroup::Work() { return Await(State::kWorking); }
absl::Status BackgroundGroup::Rest() { return Await(State::kResting); }

absl::Status BackgroundGroup::Await(State state) {
  MutexLock lock(&mutex_);
  wanted_ = state;
  const auto there = [this, state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == state || state_ == State::kOver;
  };
  mutex_.Await(absl::Condition(&there));
  return ended_;
}

void BackgroundGroup::Run() {
  MemberProcesses& processes = *implementations_.processes.front();
  while (true) {
    {
      MutexLock lock(&mutex_);
      state_ = wanted_;
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return wanted_ != State::kResting;
      };
      if (state_ == State::kResting) mutex_.Await(absl::Condition(&awake));
      state_ = wanted_;
      if (state_ == State::kOver) return;
    }
    const absl::Status ran = processes.Run(kId, kIterations).status();
    if (ran.ok()) continue;
    MutexLock lock(&mutex_);
    ended_ = ran;
    state_ = State::kOver;
    return;
  }
}

}  // namespace cohort::benchmark
