// Where commands get a group that moves tensors. They know `client::Group` alone: who puts the
// program together says how a rank comes to be.
#ifndef COHORT_CLIENT_CLI_GROUP_MAKER_H_
#define COHORT_CLIENT_CLI_GROUP_MAKER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/rendezvous/connection.h"
#include "client/rendezvous/report.h"

namespace cohort::cli {

enum class GroupForm {
  kLocal,     // this process is the rank
  kAttached,  // a daemon on this machine is the rank, and lends this process its memory
  kRemote,    // a daemon is the rank; this process calls it
};

struct GroupRequest {
  GroupForm form = GroupForm::kLocal;
  std::string worker;  // the daemon's address; of kLocal: empty
  client::ConnectionOptions coordinator;
  std::string group;
  int rank = 0;
  int world_size = 0;
  std::string member;  // empty: rank-N
  absl::Duration form_timeout = absl::Seconds(60);
  absl::Duration call_timeout = absl::Seconds(60);
  // While the group forms, on the caller's thread, about each second.
  std::function<void(const client::MissingReport&)> on_waiting;
};

class GroupMaker {
 public:
  virtual ~GroupMaker() = default;

  // Blocks until the group is complete. Errors: those of client::ProcessGroup::Create, of the
  // worker, and UNIMPLEMENTED (this program has no such form).
  virtual absl::StatusOr<std::unique_ptr<client::Group>> Make(const GroupRequest& request) = 0;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_GROUP_MAKER_H_
