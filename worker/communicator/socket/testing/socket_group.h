// Groups over loopback, for tests.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TESTING_SOCKET_GROUP_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TESTING_SOCKET_GROUP_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "worker/communicator/socket/socket_communicator.h"

namespace cohort::worker {

inline constexpr Id128 kTestSecret = {1, 2};

inline Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }
inline Instant Soon() { return In(absl::Seconds(60)); }

// The listeners of a group's ranks.
struct TestGroup {
  explicit TestGroup(int size) {
    for (int rank = 0; rank < size; ++rank) {
      absl::StatusOr<Listener> listener = Listener::Open("127.0.0.1", 0);
      EXPECT_TRUE(listener.ok()) << listener.status();
      addresses.push_back(listener->address());
      listeners.push_back(*std::move(listener));
    }
  }

  std::unique_ptr<SocketCommunicator> Connect(int rank, const SocketOptions& options = {}) const {
    auto connected = SocketCommunicator::Connect(rank, listeners[static_cast<size_t>(rank)],
                                                 addresses, kTestSecret, options, Soon());
    EXPECT_TRUE(connected.ok()) << connected.status();
    return connected.ok() ? *std::move(connected) : nullptr;
  }

  std::vector<std::unique_ptr<SocketCommunicator>> ConnectAll(
      const SocketOptions& options = {}) const {
    std::vector<std::unique_ptr<SocketCommunicator>> ranks(listeners.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] { ranks[rank] = Connect(static_cast<int>(rank), options); });
    }
    for (std::thread& thread : threads) thread.join();
    return ranks;
  }

  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TESTING_SOCKET_GROUP_H_
