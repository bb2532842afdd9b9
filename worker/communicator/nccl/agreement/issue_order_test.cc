#include "worker/communicator/nccl/agreement/issue_order.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }
absl::Status Stands() { return absl::OkStatus(); }

TEST(IssueOrderTest, ManyDevicesIssueWhatTheyShareInOneOrder) {
  constexpr int kDevices = 4;
  constexpr int kOperations = 200;
  constexpr uint32_t kSeed = 20261122;
  // Operation i is of some of the devices; on each, a thread of its own calls it.
  std::mt19937 random(kSeed);
  struct Operation {
    std::vector<int> devices;
    std::atomic<int> proposals{0};
    std::atomic<int64_t> agreed{0};
  };
  std::vector<Operation> operations(kOperations);
  for (Operation& operation : operations) {
    for (int device = 0; device < kDevices; ++device) {
      if (random() % 2 == 0) operation.devices.push_back(device);
    }
    if (operation.devices.empty()) operation.devices = {0, 1};
  }
  std::vector<std::vector<int>> issued(kDevices);
  std::vector<std::thread> threads;
  for (int i = 0; i < kOperations; ++i) {
    Operation& operation = operations[static_cast<size_t>(i)];
    for (const int device : operation.devices) {
      threads.emplace_back([&, i, device] {
        IssueOrder::Ticket ticket = IssueOrder::Of(100 + device).Propose(static_cast<uint64_t>(i));
        // The agreement: the largest of all proposals.
        const int64_t own = ticket.proposed();
        int64_t largest = operation.agreed.load();
        while (largest < own && !operation.agreed.compare_exchange_weak(largest, own)) {
        }
        ++operation.proposals;
        while (operation.proposals.load() < static_cast<int>(operation.devices.size())) {
          std::this_thread::yield();
        }
        EXPECT_EQ(ticket.Await(operation.agreed.load(), Stands, In(absl::Seconds(60))),
                  absl::OkStatus());
        // Alone, as long as the ticket lasts.
        issued[static_cast<size_t>(device)].push_back(i);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (int a = 0; a < kDevices; ++a) {
    for (int b = a + 1; b < kDevices; ++b) {
      const auto shared = [&](int device) {
        std::vector<int> both;
        for (const int i : issued[static_cast<size_t>(device)]) {
          const std::vector<int>& on = operations[static_cast<size_t>(i)].devices;
          if (std::count(on.begin(), on.end(), a) > 0 && std::count(on.begin(), on.end(), b) > 0) {
            both.push_back(i);
          }
        }
        return both;
      };
      EXPECT_EQ(shared(a), shared(b)) << "devices " << a << ", " << b << ", seed " << kSeed;
    }
  }
}

TEST(IssueOrderTest, WaitsForWhatComesFirstAndNoLongerThanItMay) {
  IssueOrder& order = IssueOrder::Of(200);
  auto first = std::make_unique<IssueOrder::Ticket>(order.Propose(1));
  IssueOrder::Ticket second = order.Propose(2);
  EXPECT_LT(first->proposed(), second.proposed());
  for (const int64_t wrong : {int64_t{0}, INT64_MAX}) {
    EXPECT_TRUE(absl::IsAborted(second.Await(wrong, Stands, In(absl::Seconds(60)))));
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(second.Await(5, Stands, In(absl::Milliseconds(10)))));
  EXPECT_TRUE(absl::IsAborted(second.Await(
      5, [] { return absl::AbortedError("gone"); }, In(absl::Seconds(60)))));
  // It is behind.
  EXPECT_TRUE(absl::IsDeadlineExceeded(first->Await(9, Stands, In(absl::Milliseconds(10)))));
  EXPECT_EQ(second.Await(5, Stands, In(absl::Seconds(60))), absl::OkStatus());
  first.reset();
  // A later operation gets a larger number.
  EXPECT_GT(order.Propose(3).proposed(), 9);
}

// A ticket that ends wakes the next: a wait that ends by its own look takes 20 ms each time.
TEST(IssueOrderTest, ATicketThatEndsWakesTheNext) {
  constexpr int kTickets = 1000;
  IssueOrder& order = IssueOrder::Of(400);
  std::atomic<int> begun{0};
  const auto take_tickets = [&] {
    for (int i = 0; i < kTickets; ++i) {
      IssueOrder::Ticket ticket = order.Propose(1);
      // Both have proposed before either goes on, so that one of them waits.
      ++begun;
      while (begun.load() < 2 * (i + 1)) std::this_thread::yield();
      EXPECT_EQ(ticket.Await(ticket.proposed(), Stands, In(absl::Seconds(60))), absl::OkStatus());
    }
  };
  const Instant begin = Clock::Steady().Now();
  std::thread other(take_tickets);
  take_tickets();
  other.join();
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(10)) << "tickets were awaited by looks";
}

TEST(IssueOrderTest, CountsTheGroupsOfADevice) {
  const IssueOrder::IssuingGroup one(300);
  EXPECT_FALSE(one.is_one_of_many());
  {
    const IssueOrder::IssuingGroup elsewhere(301);
    EXPECT_FALSE(one.is_one_of_many());
    const IssueOrder::IssuingGroup other(300);
    EXPECT_TRUE(one.is_one_of_many());
    EXPECT_TRUE(other.is_one_of_many());
  }
  EXPECT_FALSE(one.is_one_of_many());
}

}  // namespace
}  // namespace cohort::worker
