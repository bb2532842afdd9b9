// Groups form and end, and leave nothing behind: no descriptor, no thread, no mapping.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"
#include "worker/group/local_group.h"

namespace cohort {
namespace {

using worker::LocalGroup;
using worker::LocalGroupOptions;

constexpr int kRanks = 2;
// As many as a run of all tests has time for. Ten thousand: --test_env=CYCLES=10000.
constexpr int kCycles = 200;
// Everything that is created only once exists after this many cycles.
constexpr int kWarmUp = 20;
// gRPC's pools have more or fewer threads depending on their work.
constexpr int kThreadsOfPools = 8;
// The process may grow by this much; a leak of one page a cycle is more in ten thousand cycles.
constexpr int64_t kGrowthKib = 32 << 10;

int CyclesAsked() {
  const char* const asked = std::getenv("CYCLES");
  return asked == nullptr ? kCycles : std::atoi(asked);
}

struct Held {
  int descriptors = 0;
  int threads = 0;
  int shared_mappings = 0;
  int64_t anonymous_kib = 0;
};

int EntriesOf(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

Held HeldNow() {
  Held held;
  held.descriptors = EntriesOf("/proc/self/fd");
  held.threads = EntriesOf("/proc/self/task");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) ++held.shared_mappings;
  }
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.find("RssAnon:") == 0) held.anonymous_kib = std::atoll(line.c_str() + 8);
  }
  return held;
}

// Measures until no more is held than before: gRPC's threads come and go, and the coordinator
// notices only after a while that a connection ended.
Held SettledAt(const Held& before) {
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
  Held now = HeldNow();
  while (Clock::Steady().Now() < deadline &&
         (now.descriptors > before.descriptors || now.threads > before.threads + kThreadsOfPools ||
          now.shared_mappings > before.shared_mappings)) {
    std::this_thread::yield();
    now = HeldNow();
  }
  return now;
}

class CyclesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(coordinator_.Start().ok()); }

  // Rank `rank` of group number `cycle` joins, runs collectives and leaves.
  void Cycle(int cycle, int rank, bool sockets) {
    LocalGroupOptions options;
    options.membership.connection.address = coordinator_.address();
    options.membership.group = absl::StrCat("cycle-", cycle);
    options.membership.rank = rank;
    options.membership.world_size = kRanks;
    if (sockets) options.bootstrap.host_identity = absl::StrCat("host-", rank);
    options.timeout = absl::Seconds(60);
    const auto group = LocalGroup::Create(std::move(options));
    ASSERT_TRUE(group.ok()) << "cycle " << cycle << ": " << group.status();
    const absl::StatusOr<Tensor> tensor = (*group)->Allocate(DataType::kI64, {1000});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    auto* const values = static_cast<int64_t*>(tensor->data());
    std::fill_n(values, 1000, rank + 1);
    const absl::Status status = (*group)->AllReduce(*tensor, *tensor, {ReduceOp::kSum}, {});
    ASSERT_TRUE(status.ok()) << "cycle " << cycle << ": " << status;
    ASSERT_EQ(values[999], 3) << "cycle " << cycle;
    // No rank leaves while the other one is still in the collective.
    ASSERT_TRUE((*group)->AllGatherObjects("", {}).ok()) << "cycle " << cycle;
  }

  void Run(int from, int to, bool sockets) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([this, from, to, sockets, rank] {
        for (int cycle = from; cycle < to && !HasFatalFailure(); ++cycle) {
          Cycle(cycle, rank, sockets);
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  void LeaveNothing(bool sockets) {
    const int cycles = CyclesAsked();
    Run(0, kWarmUp, sockets);
    const Held before = HeldNow();
    const Instant begin = Clock::Steady().Now();
    Run(kWarmUp, kWarmUp + cycles, sockets);
    const absl::Duration took = Clock::Steady().Now() - begin;
    const Held after = SettledAt(before);
    std::cout << cycles << " cycles, " << absl::FormatDuration(took / cycles)
              << " each; descriptors " << before.descriptors << " -> " << after.descriptors
              << ", threads " << before.threads << " -> " << after.threads << ", shared mappings "
              << before.shared_mappings << " -> " << after.shared_mappings << ", memory "
              << before.anonymous_kib << " -> " << after.anonymous_kib << " KiB\n";
    EXPECT_LE(after.descriptors, before.descriptors);
    EXPECT_LE(after.threads, before.threads + kThreadsOfPools);
    EXPECT_LE(after.shared_mappings, before.shared_mappings);
    EXPECT_LE(after.anonymous_kib, before.anonymous_kib + kGrowthKib);
  }

  testing::CoordinatorProcess coordinator_{{}};
};

TEST_F(CyclesTest, BySharedMemory) { LeaveNothing(false); }
TEST_F(CyclesTest, BySockets) { LeaveNothing(true); }

}  // namespace
}  // namespace cohort
