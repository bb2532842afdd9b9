// A command's membership in a group that moves tensors, for as long as the command runs.
#ifndef COHORT_CLIENT_CLI_TENSOR_COMMANDS_TENSOR_GROUP_MEMBERSHIP_H_
#define COHORT_CLIENT_CLI_TENSOR_COMMANDS_TENSOR_GROUP_MEMBERSHIP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/clients/group_maker.h"
#include "client/cli/context/command_context.h"
#include "client/collective/group.h"

namespace cohort::cli {

struct GroupFlags {
  std::string group;
  int rank = -1;       // -1: not given
  int world_size = 0;  // 0: not given
  std::string form = "local";
  std::vector<std::string> workers;
  std::optional<int> gpu;  // as of GroupRequest; no flag of all commands
};

// Adds --group, --rank, --world-size, --form and --worker.
void AddGroupFlags(CLI::App& command, GroupFlags& flags);

// Checks that the flags fit together. Errors: INVALID_ARGUMENT.
absl::Status CheckGroupFlags(const GroupFlags& flags);

// Confined to one thread; borrows the context. An interrupt aborts the group, so that the others
// get this rank as the cause, and runs the function of SetOnInterrupt.
class TensorGroupMembership {
 public:
  // Blocks until the group is complete, at most `timeout`, which also limits each call. Meanwhile a
  // line on standard error shows the missing members, or that the coordinator is away. Errors: as
  // CheckGroupFlags and GroupMaker::Make.
  static absl::StatusOr<std::unique_ptr<TensorGroupMembership>> Join(Context& context,
                                                                     const GroupFlags& flags,
                                                                     absl::Duration timeout);
  ~TensorGroupMembership();
  TensorGroupMembership(const TensorGroupMembership&) = delete;
  TensorGroupMembership& operator=(const TensorGroupMembership&) = delete;

  client::Group& group() { return *group_; }

  // Runs on an interrupt, too, on another thread.
  void SetOnInterrupt(std::function<void()> work);

 private:
  explicit TensorGroupMembership(Context& context) : context_(context) {}

  Context& context_;
  std::unique_ptr<client::Group> group_;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TENSOR_COMMANDS_TENSOR_GROUP_MEMBERSHIP_H_
