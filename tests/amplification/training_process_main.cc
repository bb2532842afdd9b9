// A training process with the two sockets at which other processes call it: a queue that it writes,
// and a rank that waits for the connections of rank 1 again and again.
//
// Prints "queue HEX_HANDLE" and "mesh PORT". Ends with its standard input.
#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/parallel/queue/message_queue.h"
#include "tests/amplification/mesh_messages.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/mesh/rank_listener.h"

namespace cohort::amplification {
namespace {

int Main() {
  parallel::QueueOptions options;
  options.listen = "127.0.0.1:0";
  options.blocks = 1;
  options.block_bytes = 1 << 20;
  const auto queue = parallel::MessageQueue::CreateExternal("queue", options);
  const auto listener = worker::Listener::Open("127.0.0.1", 0);
  if (!queue.ok() || !listener.ok()) return 1;
  std::cout << "queue " << absl::BytesToHexString((*queue)->handle()) << std::endl;
  std::cout << "mesh " << listener->port() << std::endl;
  std::atomic<bool> stop = false;
  std::thread rank([&] {
    while (!stop) {
      // Fails when no rank comes in time, which is no harm here.
      worker::ConnectMesh(*listener, MeshOptionsOf(0, listener->address()),
                          Clock::Steady().Now() + absl::Seconds(1))
          .status()
          .IgnoreError();
    }
  });
  for (std::string line; std::getline(std::cin, line);) {
  }
  stop = true;
  rank.join();
  return 0;
}

}  // namespace
}  // namespace cohort::amplification

int main() { return cohort::amplification::Main(); }
