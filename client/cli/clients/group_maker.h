// Creates the groups in which commands move tensors. Commands know only `client::Group`; the
// program decides how a rank is created.
#ifndef COHORT_CLIENT_CLI_CLIENTS_GROUP_MAKER_H_
#define COHORT_CLIENT_CLI_CLIENTS_GROUP_MAKER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/report/report.h"

namespace cohort::cli {

enum class GroupForm {
  kLocal,     // this process is the rank
  kAttached,  // a daemon on this machine is the rank, and lends this process its memory
  kRemote,    // a daemon is the rank; this process calls it
};

// Instead of a GPU's number: the rank, modulo the number of GPUs.
inline constexpr int kGpuOfRank = -1;

struct GroupRequest {
  GroupForm form = GroupForm::kLocal;
  // For kLocal: a GPU of this process, by CUDA's number; the group then moves tensors on it as well
  // as on the host. Absent: on the host alone.
  std::optional<int> gpu;
  std::string worker;  // the daemon's address; for kLocal: empty
  client::ConnectionOptions coordinator;
  std::string group;
  int rank = 0;
  int world_size = 0;
  std::string member;  // empty: rank-N
  absl::Duration form_timeout = absl::Seconds(60);
  absl::Duration call_timeout = absl::Seconds(60);
  // Called about each second while the group forms, on the caller's thread.
  std::function<void(const client::MissingReport&)> on_waiting;
};

class GroupMaker {
 public:
  virtual ~GroupMaker() = default;

  // Blocks until the group is complete. Errors: those of client::ProcessGroup::Create, of the
  // worker, UNIMPLEMENTED (this program does not have the form), and why the GPU does not exist.
  virtual absl::StatusOr<std::unique_ptr<client::Group>> Make(const GroupRequest& request) = 0;
  // Copies between the host and the GPU of a group that it made. Blocks for at most a minute.
  // Errors: INVALID_ARGUMENT, DEADLINE_EXCEEDED, those of the GPU.
  virtual absl::Status Copy(const Tensor& from, const Tensor& to) = 0;
  // The GPUs of this process, at least one. Errors: why it has no GPU.
  virtual absl::StatusOr<int> CountGpus() = 0;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CLIENTS_GROUP_MAKER_H_
