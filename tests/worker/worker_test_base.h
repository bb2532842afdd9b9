// A coordinator and worker daemons in processes of their own, and groups on them.
#ifndef COHORT_TESTS_WORKER_WORKER_TEST_BASE_H_
#define COHORT_TESTS_WORKER_WORKER_TEST_BASE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/collective/remote/remote_group.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {

// How clients reach their workers.
enum class Transport {
  kUnix,       // by a path, and attached
  kTcp,        // by a port, and attached
  kRemoteTcp,  // by a port, as from another host
  kAttached,   // attached, and runs the collectives itself
};

class WorkerTest : public ::testing::Test {
 protected:
  ~WorkerTest() override;
  // Starts the coordinator.
  void SetUp() override;

  // One more worker; `flags` besides its addresses and coordinator.
  void StartWorker(const std::vector<std::string>& flags = {},
                   const std::vector<std::string>& environment = {});
  CoordinatorProcess& worker(int index) { return *workers_[static_cast<size_t>(index)].process; }
  std::string AddressOf(int index, Transport transport) const;
  std::unique_ptr<v1::WorkerService::Stub> StubOf(int index) const;
  v1::GetWorkerResponse Describe(int index) const;
  // Waits until the worker has no sessions, ranks or tensors.
  bool AwaitEmpty(int index) const;

  std::shared_ptr<client::WorkerSession> Connect(int index, Transport transport,
                                                 const std::string& name = "test") const;
  client::RemoteGroupOptions GroupOptionsOf(std::shared_ptr<client::WorkerSession> session,
                                            const std::string& group, int rank,
                                            int world_size) const;
  // Rank r on session r.
  using Groups = std::vector<std::unique_ptr<client::Group>>;
  Groups JoinAll(const std::vector<std::shared_ptr<client::WorkerSession>>& sessions,
                 const std::string& group, const std::vector<Transport>& transports = {}) const;

  // Runs body(0), body(1)..., each on a thread of its own, and returns the statuses.
  static std::vector<absl::Status> OnRanks(const Groups& groups,
                                           const std::function<absl::Status(client::Group&)>& body);
  static void ExpectOk(const std::vector<absl::Status>& statuses);

  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::string worker_binary_ = "worker/daemon/cohort-worker";

 private:
  struct Worker {
    std::unique_ptr<CoordinatorProcess> process;
    std::string folder;
    std::string path;
  };
  std::vector<Worker> workers_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_WORKER_WORKER_TEST_BASE_H_
