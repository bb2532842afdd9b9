#include "client/cli/tensor_commands/tensor_group_membership.h"

#include <map>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "client/cli/output/waiting_line.h"

namespace cohort::cli {
namespace {

const std::map<std::string, GroupForm>& Forms() {
  static const auto* const forms =
      new std::map<std::string, GroupForm>{{"local", GroupForm::kLocal},
                                           {"attached", GroupForm::kAttached},
                                           {"remote", GroupForm::kRemote}};
  return *forms;
}

// One worker for each rank, or only this rank's.
std::string WorkerOf(const GroupFlags& flags) {
  if (flags.workers.empty()) return "";
  const size_t index = flags.workers.size() == 1 ? 0 : static_cast<size_t>(flags.rank);
  return absl::StrReplaceAll(flags.workers[index], {{"{rank}", absl::StrCat(flags.rank)}});
}

}  // namespace

void AddGroupFlags(CLI::App& command, GroupFlags& flags) {
  command.add_option("--group", flags.group, "name of the group");
  command.add_option("--rank", flags.rank, "the rank to take part as")->check(WholeNumber(0));
  command.add_option("--world-size", flags.world_size, "how many ranks the group has")
      ->check(WholeNumber(1));
  command
      .add_option(
          "--form", flags.form,
          "where the rank lives: local, this process; attached, a worker on this machine whose "
          "memory this process uses; remote, a worker that this process calls")
      ->check(CLI::IsMember({"local", "attached", "remote"}));
  command
      .add_option("--worker", flags.workers,
                  "address of a worker, for attached and remote: this rank's, or repeated, one for "
                  "each rank; {rank} in it becomes the number of the rank")
      ->type_name("ADDRESS")
      ->allow_extra_args(false);
}

absl::Status CheckGroupFlags(const GroupFlags& flags) {
  if (flags.group.empty()) return absl::InvalidArgumentError("--group is required");
  if (flags.rank < 0) return absl::InvalidArgumentError("--rank is required");
  if (flags.world_size < 1) return absl::InvalidArgumentError("--world-size is required");
  if (flags.rank >= flags.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank ", flags.rank, ": ranks are 0..", flags.world_size - 1));
  }
  if (flags.gpu.has_value() && Forms().at(flags.form) != GroupForm::kLocal) {
    return absl::InvalidArgumentError(
        absl::StrCat("a GPU is this process's: it does not go with --form ", flags.form));
  }
  const size_t workers = flags.workers.size();
  if (Forms().at(flags.form) == GroupForm::kLocal) {
    if (workers == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("--worker goes with --form attached or remote");
  }
  if (workers == 1 || workers == static_cast<size_t>(flags.world_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--form ", flags.form,
                                                 " takes one --worker, or one for each of the ",
                                                 flags.world_size, " ranks, not ", workers));
}

absl::StatusOr<std::unique_ptr<TensorGroupMembership>> TensorGroupMembership::Join(
    Context& context, const GroupFlags& flags, absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(CheckGroupFlags(flags));
  std::unique_ptr<TensorGroupMembership> membership(new TensorGroupMembership(context));
  WaitingLine line(context.printer(), absl::StrCat("group ", flags.group));
  context.set_on_away([&line](const client::AwayReport& away) { line.Update(away); });
  GroupRequest request;
  request.form = Forms().at(flags.form);
  request.gpu = flags.gpu;
  request.worker = WorkerOf(flags);
  request.coordinator = context.ConnectionOptions();
  request.group = flags.group;
  request.rank = flags.rank;
  request.world_size = flags.world_size;
  request.form_timeout = timeout;
  request.call_timeout = timeout;
  request.on_waiting = [&context, &line](const client::MissingReport& report) {
    context.set_missing(report);
    line.Update(report);
  };
  auto made = context.environment().groups->Make(request);
  context.set_on_away(nullptr);
  COHORT_ASSIGN_OR_RETURN(membership->group_, std::move(made));
  // The members that were late for the group are no longer the missing ones.
  context.set_missing(std::nullopt);
  membership->SetOnInterrupt(nullptr);
  return membership;
}

TensorGroupMembership::~TensorGroupMembership() {
  if (group_ != nullptr) context_.SetOnInterrupt(nullptr);
}

void TensorGroupMembership::SetOnInterrupt(std::function<void()> work) {
  context_.SetOnInterrupt([group = group_.get(), work = std::move(work)] {
    group->Abort(absl::CancelledError("interrupted"));
    if (work) work();
  });
}

}  // namespace cohort::cli
