#include "client/cli/context/group_membership.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::cli {

void AddMembershipFlags(CLI::App& command, MembershipFlags& flags) {
  command.add_option("GROUP", flags.group, "name of the group")->required();
  command.add_option("--rank", flags.rank, "the rank to take part as")
      ->required()
      ->check(WholeNumber(0));
  command.add_option("--world-size", flags.world_size, "how many ranks the group has")
      ->required()
      ->check(WholeNumber(1));
  command.add_option("--member", flags.member, "name of this member (default: rank-N)");
}

absl::StatusOr<std::unique_ptr<GroupMembership>> GroupMembership::Join(Context& context,
                                                                       const MembershipFlags& flags,
                                                                       absl::Duration timeout) {
  const Instant deadline = context.environment().clock->Now() + timeout;
  std::unique_ptr<GroupMembership> membership(new GroupMembership(context, deadline));
  membership->ShowWaiting(
      std::make_unique<WaitingLine>(context.printer(), absl::StrCat("group ", flags.group)));

  client::ProcessGroupOptions options;
  COHORT_ASSIGN_OR_RETURN(options.shared_connection, context.Connect());
  options.connection = options.shared_connection->options();
  options.group = flags.group;
  options.rank = flags.rank;
  options.world_size = flags.world_size;
  options.member = flags.member;
  options.join_timeout = membership->Remaining();
  options.timeout = membership->Remaining();
  options.on_waiting =
      [&context, line = membership->waiting_line_.get()](const client::MissingReport& report) {
        context.set_missing(report);
        line->Update(report);
      };
  COHORT_ASSIGN_OR_RETURN(membership->group_, context.environment().clients->Join(options));
  membership->ShowWaiting(nullptr);
  // The members that were late for the group are no longer the missing ones.
  context.set_missing(std::nullopt);
  context.SetOnInterrupt(
      [group = membership->group_.get()] { group->Leave("interrupted").IgnoreError(); });
  return membership;
}

GroupMembership::~GroupMembership() {
  ShowWaiting(nullptr);
  if (group_ != nullptr) Release(absl::OkStatus()).IgnoreError();
}

void GroupMembership::ShowWaiting(std::unique_ptr<WaitingLine> line) {
  waiting_line_ = std::move(line);
  if (waiting_line_ == nullptr) return context_.set_on_away(nullptr);
  context_.set_on_away(
      [line = waiting_line_.get()](const client::AwayReport& away) { line->Update(away); });
}

absl::Duration GroupMembership::Remaining() const {
  return std::max(deadline_ - context_.environment().clock->Now(), absl::Milliseconds(1));
}

client::RoundOptions GroupMembership::RoundOptions(const std::string& name,
                                                   const std::string& what) {
  ShowWaiting(std::make_unique<WaitingLine>(context_.printer(), what));
  client::RoundOptions options;
  options.name = name;
  options.timeout = Remaining();
  options.on_waiting = [this](const client::MissingReport& report) {
    context_.set_missing(report);
    waiting_line_->Update(report);
  };
  return options;
}

absl::Status GroupMembership::Release(absl::Status outcome) {
  ShowWaiting(nullptr);
  context_.SetOnInterrupt(nullptr);
  // Leave is a courtesy: an earlier end of the generation does not matter now.
  if (!absl::IsUnavailable(outcome)) {
    // The others get this text as the cause of their failed waits.
    group_->Leave(outcome.ok() ? "done" : absl::StrCat("it failed: ", outcome.message()))
        .IgnoreError();
  }
  group_.reset();
  return outcome;
}

}  // namespace cohort::cli
