// Groups over loopback, for tests.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TESTING_SOCKET_GROUP_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TESTING_SOCKET_GROUP_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/tls/testing/certificates.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/link_proof.h"
#include "worker/communicator/socket/mesh/secure_mesh.h"
#include "worker/communicator/socket/socket_communicator.h"

namespace cohort::worker {

inline constexpr Id128 kTestSecret = {1, 2};

inline Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }
inline Instant Soon() { return In(absl::Seconds(60)); }

// The certificate of all ranks of a test. Null unless the test runs with COHORT_TEST_TLS.
inline std::shared_ptr<SSL_CTX> TestCertificate() {
  if (std::getenv("COHORT_TEST_TLS") == nullptr) return nullptr;
  static const std::shared_ptr<SSL_CTX> context = [] {
    const testing::CertificateAuthority ca(::testing::TempDir());
    return (*TlsContext::Load(ca.Sign("rank", {"rank", ""}), TlsSide::kPeer))
        ->Current(Clock::Steady().Now());
  }();
  return context;
}

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
    auto mesh = SocketCommunicator::ConnectLinks(
        rank, listeners[static_cast<size_t>(rank)], addresses,
        tls == nullptr ? kTestSecret : SecretBeforeTls(kTestSecret), options, Soon());
    EXPECT_TRUE(mesh.ok()) << mesh.status();
    if (!mesh.ok()) return nullptr;
    if (tls != nullptr) {
      const absl::Status secured =
          SecureMesh(*mesh, {rank, kTestSecret, tls, options.names, addresses}, Soon());
      EXPECT_TRUE(secured.ok()) << secured;
    }
    auto made = SocketCommunicator::Make(rank, *std::move(mesh), options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
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

  std::shared_ptr<SSL_CTX> tls = TestCertificate();  // null: plain
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TESTING_SOCKET_GROUP_H_
