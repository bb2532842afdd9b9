// Hosts for tests: network namespaces of this machine, each with one link to a switch that lies in
// a namespace of its own. The machine's own network is not touched.
#ifndef COHORT_TESTS_FAILURE_HOST_NETWORK_H_
#define COHORT_TESTS_FAILURE_HOST_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/failure/child_process.h"

namespace cohort::testing {

// Thread-compatible. The namespaces have no names: they go with their last process, so that nothing
// stays behind however the test ends.
class HostNetwork {
 public:
  // Needs root, or user namespaces for all. UNAVAILABLE: this machine does not let us; the text
  // says what was tried.
  static absl::StatusOr<std::unique_ptr<HostNetwork>> Create(int hosts);

  static std::string Address(int host);
  // `command` (as for ChildProcess) on that host. It ends with the test, even with one that is
  // killed.
  std::vector<std::string> On(int host, std::vector<std::string> command) const;

  // Pulls the host's cable, and plugs it in again.
  absl::Status Cut(int host);
  absl::Status Mend(int host);

  // Queues what the link carries, both ways: `discipline` as tc has it, such as "netem delay 20ms".
  // UNIMPLEMENTED: this kernel has no such discipline.
  absl::Status Shape(int host, const std::string& discipline);
  // Packets that the queues of Shape have dropped on their way to this host.
  absl::StatusOr<int64_t> Dropped(int host);

 private:
  using Namespace = std::unique_ptr<ChildProcess>;

  HostNetwork() = default;
  absl::StatusOr<Namespace> NewNamespace();
  absl::Status Connect(int host);
  // A script of the shell, in the namespace that `holder` holds; its output.
  absl::StatusOr<std::string> Run(const ChildProcess& holder, const std::string& script);

  // Processes that do nothing but live in their namespace.
  Namespace switch_;
  std::vector<Namespace> hosts_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_HOST_NETWORK_H_
