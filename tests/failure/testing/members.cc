#include "tests/failure/testing/members.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/rendezvous/admin_client.h"
#include "gtest/gtest.h"

namespace cohort::testing {

using client::Connection;
using client::ConnectionOptions;
using client::GroupEvent;
using client::ProcessGroup;
using client::ProcessGroupOptions;

uint64_t TestSeed() {
  uint64_t seed = std::random_device()();
  if (const char* const given = std::getenv("COHORT_TEST_SEED"); given != nullptr) {
    if (!absl::SimpleAtoi(given, &seed)) ADD_FAILURE() << "COHORT_TEST_SEED is no number";
  }
  std::cout << "COHORT_TEST_SEED=" << seed << std::endl;
  return seed;
}

std::shared_ptr<Connection> Connect(const std::string& address) {
  ConnectionOptions options;
  options.address = address;
  options.min_backoff = absl::Milliseconds(10);
  options.max_backoff = absl::Milliseconds(100);
  absl::StatusOr<std::shared_ptr<Connection>> connection = Connection::Create(options);
  EXPECT_TRUE(connection.ok()) << connection.status();
  return connection.ok() ? *std::move(connection) : nullptr;
}

ProcessGroupOptions MemberOptions(std::shared_ptr<Connection> connection, const std::string& group,
                                  int rank, int world_size) {
  ProcessGroupOptions options;
  options.shared_connection = std::move(connection);
  options.group = group;
  options.rank = rank;
  options.world_size = world_size;
  options.join_timeout = kTimeout;
  options.timeout = kTimeout;
  return options;
}

Members JoinAll(const std::vector<std::shared_ptr<Connection>>& connections,
                const std::string& group, int world_size,
                const std::function<void(ProcessGroupOptions&)>& adjust) {
  struct Joined {
    absl::Status status;
    // A callback's argument is copied into the slot, which a unique_ptr cannot be.
    std::shared_ptr<std::unique_ptr<ProcessGroup>> member;
  };
  Answers<Joined> answers(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    ProcessGroupOptions options =
        MemberOptions(connections[rank % connections.size()], group, rank, world_size);
    if (adjust != nullptr) adjust(options);
    auto slot = answers.Slot(rank);
    ProcessGroup::CreateAsync(
        options, [slot](absl::StatusOr<std::unique_ptr<ProcessGroup>> member) {
          Joined joined{member.status(), std::make_shared<std::unique_ptr<ProcessGroup>>()};
          if (member.ok()) *joined.member = *std::move(member);
          slot(std::move(joined));
        });
  }
  EXPECT_TRUE(answers.AwaitAll(kTimeout + absl::Seconds(10)))
      << answers.arrived() << " of " << world_size << " answers to Create came";
  Members members(world_size);
  if (answers.arrived() < world_size) return members;
  for (int rank = 0; rank < world_size; ++rank) {
    EXPECT_TRUE(answers[rank].status.ok()) << "rank " << rank << ": " << answers[rank].status;
    members[rank] = std::move(*answers[rank].member);
  }
  return members;
}

bool Eventually(const std::function<bool()>& condition, absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  while (!condition()) {
    if (Clock::Steady().Now() > deadline) return false;
    // The condition depends on another process, which sends no notification: poll every 5 ms.
    poll(nullptr, 0, 5);
  }
  return true;
}

bool AwaitParked(const std::string& address, const std::string& group, int64_t count,
                 absl::Duration timeout) {
  const std::unique_ptr<client::AdminClient> admin = client::AdminClient::Create(Connect(address));
  return Eventually(
      [&] {
        const absl::StatusOr<std::vector<client::ParkedCall>> calls = admin->DumpWaits(group);
        if (!calls.ok()) return false;
        return count <=
               std::count_if(calls->begin(), calls->end(), [](const client::ParkedCall& call) {
                 return !absl::StartsWith(call.operation, "watch");
               });
      },
      timeout);
}

void OnThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index) threads.emplace_back([&body, index] { body(index); });
  for (std::thread& thread : threads) thread.join();
}

std::function<void(absl::Status, client::RoundReport)> BarrierSlot(Answers<BarrierAnswer>& answers,
                                                                   int index) {
  return [slot = answers.Slot(index)](absl::Status status, client::RoundReport report) {
    slot(BarrierAnswer{std::move(status), std::move(report)});
  };
}

std::function<void(const GroupEvent&)> Events::Slot() {
  return [state = state_](const GroupEvent& event) {
    MutexLock lock(&state->mutex);
    state->events.push_back(event);
  };
}

std::optional<GroupEvent> Events::Await(client::EventKind kind, absl::Duration timeout) {
  std::optional<GroupEvent> found;
  const auto look = [this, kind, &found] {
    for (const GroupEvent& event : state_->events) {
      if (event.kind == kind) {
        found = event;
        return true;
      }
    }
    return false;
  };
  MutexLock lock(&state_->mutex);
  state_->mutex.AwaitWithTimeout(absl::Condition(&look), timeout);
  return found;
}

}  // namespace cohort::testing
