// A real coordinator process, and members that are threads with a connection of their own.
#ifndef COHORT_TESTS_RENDEZVOUS_RENDEZVOUS_TEST_BASE_H_
#define COHORT_TESTS_RENDEZVOUS_RENDEZVOUS_TEST_BASE_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/rendezvous/process_group/process_group.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {

inline constexpr int kMembers = 8;
inline constexpr absl::Duration kLong = absl::Seconds(30);

// Waits until `holds` returns true. `holds` asks the coordinator, so each call is a round trip.
inline bool Eventually(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + kLong;
  while (absl::Now() < deadline) {
    if (holds()) return true;
  }
  return false;
}

class RendezvousTestBase : public ::testing::Test {
 protected:
  RendezvousTestBase() : coordinator_(ProcessOptions()) {}

  void SetUp() override {
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  static cohort::testing::CoordinatorProcess::Options ProcessOptions() {
    cohort::testing::CoordinatorProcess::Options options;
    options.flags = {"--journal",      "sqlite",
                     "--journal-path", absl::StrCat(cohort::testing::NewFolder(), "/journal"),
                     "--log-level",    "warning"};
    return options;
  }

  ProcessGroupOptions Options(int rank, int world_size = kMembers) {
    ProcessGroupOptions options;
    options.connection.address = coordinator_.address();
    options.group = "g";
    options.rank = rank;
    options.world_size = world_size;
    options.join_timeout = kLong;
    options.timeout = kLong;
    // Longer than a restart of the coordinator on a busy machine.
    options.disconnect_grace = absl::Seconds(10);
    return options;
  }

  // Runs `body` on one thread for each member, and joins the threads.
  void OnAllRanks(int world_size, const std::function<void(ProcessGroup&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([this, rank, world_size, &body] {
        auto group = ProcessGroup::Create(Options(rank, world_size));
        ASSERT_TRUE(group.ok()) << "rank " << rank << ": " << group.status();
        body(**group);
        // No member leaves while others still communicate with it.
        const absl::Status end = (*group)->Barrier({"end"});
        EXPECT_TRUE(end.ok() || absl::IsAborted(end)) << "rank " << rank << ": " << end;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<Connection> Connect() {
    ConnectionOptions options;
    options.address = coordinator_.address();
    return *Connection::Create(options);
  }

  cohort::testing::CoordinatorProcess coordinator_;
};

}  // namespace cohort::client

#endif  // COHORT_TESTS_RENDEZVOUS_RENDEZVOUS_TEST_BASE_H_
