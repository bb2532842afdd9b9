// An abort wakes ranks that sleep: they do not find out at their deadline.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/host_space.h"

namespace cohort::worker {
namespace {

constexpr int kRanks = 3;
constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr absl::Duration kPrompt = absl::Seconds(2);

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }

// How often the thread has gone to sleep, if it sleeps now; else nothing.
std::string Sleep(pid_t thread) {
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/status"));
  bool sleeps = false;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "State:")) sleeps = absl::StrContains(line, "S (sleeping)");
    if (absl::StartsWith(line, "voluntary_ctxt_switches:")) return sleeps ? line : "";
  }
  return "";
}

// Whether it sleeps, and goes on sleeping: longer than any pause between two looks.
bool SleepsFast(pid_t thread) {
  const std::string before = Sleep(thread);
  if (before.empty()) return false;
  absl::SleepFor(absl::Milliseconds(100));
  return Sleep(thread) == before;
}

TEST(HostAbortTest, WakesRanksThatAreAsleep) {
  absl::StatusOr<HostSpace> space = HostSpace::Create(kRanks);
  ASSERT_TRUE(space.ok()) << space.status();
  std::vector<std::unique_ptr<HostCommunicator>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    absl::StatusOr<HostSpace> mapped = HostSpace::Attach(dup(space->fd()), kRanks);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    HostMemory memory{*std::move(mapped), RankHeaps(kRanks), {}};
    ranks.push_back(std::make_unique<HostCommunicator>(std::move(memory), rank));
  }
  // One waits in a collective and one for a message; none of it ever comes.
  std::vector<absl::Status> statuses(2);
  std::atomic<pid_t> waiting[2] = {{0}, {0}};
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      waiting[rank] = static_cast<pid_t>(syscall(SYS_gettid));
      char byte = 0;
      const Transfer transfer = Transfer::Receive(2, &byte, 1, DataType::kU8);
      statuses[rank] = rank == 0 ? ranks[0]->Barrier(In(kDeadline))
                                 : ranks[1]->Exchange({&transfer, 1}, In(kDeadline));
    });
  }
  const Instant patience = In(kDeadline / 2);
  for (const std::atomic<pid_t>& thread : waiting) {
    while (thread == 0 || !SleepsFast(thread)) {
      if (Clock::Steady().Now() > patience) break;  // the abort ends them all the same
      std::this_thread::yield();
    }
  }
  EXPECT_LT(Clock::Steady().Now(), patience) << "they do not sleep";
  const Instant aborted = Clock::Steady().Now();
  ranks[2]->Abort("rank 2 aborted: enough");
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::Steady().Now() - aborted, kPrompt) << "they slept on until their deadline";
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, absl::AbortedError("rank 2 aborted: enough"));
  }
}

}  // namespace
}  // namespace cohort::worker
