// A coordinator and a worker with an access policy. A peer at a port is without rights; with
// kMemberToken it is a member of the tenant kTenant. This user is an operator at the Unix sockets.
#ifndef COHORT_TESTS_AMPLIFICATION_DEPLOYMENT_H_
#define COHORT_TESTS_AMPLIFICATION_DEPLOYMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/v1/worker.pb.h"
#include "tests/amplification/http2_peer.h"
#include "tests/amplification/wire_forms.h"
#include "tests/failure/testing/limited_coordinator.h"

namespace cohort::amplification {

inline constexpr char kMemberToken[] = "a-token-of-a-member";
inline constexpr char kTenant[] = "team-a";
// The quota of a tenant at the coordinator.
inline constexpr int64_t kTenantBytes = int64_t{32} << 20;

// A session of the member with a worker. It ends with this object.
struct WorkerSession {
  std::unique_ptr<Http2Peer> connection;
  v1::SessionOpened opened;
};

// Thread-compatible. The destructor kills the daemons.
class Deployment {
 public:
  // The daemons take requests of `request_bytes`. Fails the test if they do not start.
  explicit Deployment(size_t request_bytes);
  ~Deployment();

  const testing::LimitedCoordinator& coordinator() const { return coordinator_; }
  const testing::LimitedCoordinator& worker() const { return worker_; }
  std::string coordinator_address() const { return "unix:" + folder_ + "/coordinator"; }
  std::string worker_address() const { return "unix:" + folder_ + "/worker"; }

  // Makes the anonymous clients of TCPStore members of the tenant of their port.
  void AdmitAnonymousClients();
  // Joins a group in the member's tenant, alone. Returns what its further requests need.
  Adjust JoinAtCoordinator() const;
  WorkerSession OpenSession() const;
  // Joins a group through the worker, alone. Returns what its further requests need.
  Adjust JoinAtWorker(const WorkerSession& session) const;

 private:
  void WritePolicy(const std::vector<std::string>& rules);
  std::vector<std::string> Rules() const;

  const std::string folder_;
  testing::LimitedCoordinator coordinator_;
  testing::LimitedCoordinator worker_;
};

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_DEPLOYMENT_H_
