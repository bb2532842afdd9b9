// A command's membership in a group, for as long as the command runs.
#ifndef COHORT_CLIENT_CLI_CONTEXT_GROUP_MEMBERSHIP_H_
#define COHORT_CLIENT_CLI_CONTEXT_GROUP_MEMBERSHIP_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/context/command_context.h"
#include "client/cli/output/waiting_line.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort::cli {

struct MembershipFlags {
  std::string group;
  int rank = 0;
  int world_size = 0;
  std::string member;
};

// Adds GROUP, --rank, --world-size and --member.
void AddMembershipFlags(CLI::App& command, MembershipFlags& flags);

// Joins when made, and leaves when released or destroyed. An interrupt (Ctrl-C) between the two
// leaves the group first, so that the others get "left" at once. Confined to one thread; borrows
// the context.
class GroupMembership {
 public:
  // Blocks until the group is complete. Meanwhile a line on standard error shows the missing
  // members, or that the coordinator is away. `timeout` limits everything in this membership.
  // Errors: as ProcessGroup::Create.
  static absl::StatusOr<std::unique_ptr<GroupMembership>> Join(Context& context,
                                                               const MembershipFlags& flags,
                                                               absl::Duration timeout);
  ~GroupMembership();
  GroupMembership(const GroupMembership&) = delete;
  GroupMembership& operator=(const GroupMembership&) = delete;

  client::ProcessGroup& group() { return *group_; }

  // The rest of the timeout, and never zero (which would mean the library's default).
  absl::Duration Remaining() const;

  // Round options with the name and the rest of the timeout. A line on standard error shows the
  // missing members, or the coordinator's state. Valid until the membership is released.
  client::RoundOptions RoundOptions(const std::string& name, const std::string& what);

  // Leaves. Does not wait for the coordinator if `outcome` shows that it is away. Returns
  // `outcome`.
  absl::Status Release(absl::Status outcome);

 private:
  GroupMembership(Context& context, Instant deadline) : context_(context), deadline_(deadline) {}

  // Null: clears the line.
  void ShowWaiting(std::unique_ptr<WaitingLine> line);

  Context& context_;
  const Instant deadline_;
  std::unique_ptr<WaitingLine> waiting_line_;
  std::unique_ptr<client::ProcessGroup> group_;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CONTEXT_GROUP_MEMBERSHIP_H_
