// Hosts for tests: network namespaces of this machine, each with one link to a switch in a
// namespace of its own. The machine's own network is not touched.
#ifndef COHORT_TESTS_FAILURE_TESTING_HOST_NETWORK_H_
#define COHORT_TESTS_FAILURE_TESTING_HOST_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/failure/testing/child_process.h"

namespace cohort::testing {

// Thread-compatible. The namespaces have no names: each ends with its last process, so that nothing
// stays behind however the test ends.
class HostNetwork {
 public:
  // Needs root, or user namespaces for all users. UNAVAILABLE: this machine allows neither; the
  // text says so.
  static absl::StatusOr<std::unique_ptr<HostNetwork>> Create(int hosts);

  static std::string Address(int host);
  // Returns `command` (as for ChildProcess) as it runs on that host. It ends with the test, even
  // with one that is killed.
  std::vector<std::string> On(int host, std::vector<std::string> command) const;

  // Pulls the host's cable, and plugs it in again.
  absl::Status Cut(int host);
  absl::Status Mend(int host);
  // Packets of `host` to `other` get "no route to host".
  absl::Status Block(int host, int other);

  // Queues the packets of the link, both ways: `discipline` as in tc, such as "netem delay 20ms".
  // UNIMPLEMENTED: this kernel has no such discipline.
  absl::Status Shape(int host, const std::string& discipline);
  // Packets that the queues of Shape have dropped on their way to this host.
  absl::StatusOr<int64_t> Dropped(int host);

 private:
  using Namespace = std::unique_ptr<ChildProcess>;

  HostNetwork() = default;
  absl::StatusOr<Namespace> NewNamespace();
  absl::Status Connect(int host);
  // Runs a shell script in the namespace that `holder` holds, and returns its output.
  absl::StatusOr<std::string> Run(const ChildProcess& holder, const std::string& script);

  // Processes that only keep their namespaces alive.
  Namespace switch_;
  std::vector<Namespace> hosts_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_HOST_NETWORK_H_
