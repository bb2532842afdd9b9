#include <thread>

#include "worker/communicator/socket/socket_communicator.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

// Over loopback.
Communicators Create(int size) {
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok()) << listener.status();
    addresses.push_back(listener->address());
    listeners.push_back(*std::move(listener));
  }
  Communicators ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const size_t index = static_cast<size_t>(rank);
      auto connected = SocketCommunicator::Connect(rank, listeners[index], addresses, {1, 2}, {},
                                                   ConformanceTest::Soon());
      EXPECT_TRUE(connected.ok()) << connected.status();
      ranks[index] = *std::move(connected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(Socket, ConformanceTest,
                         ::testing::Values(Backend{"socket", {1, 2, 3, 4, 5, 7, 8}, Create}));

}  // namespace
}  // namespace cohort::worker
