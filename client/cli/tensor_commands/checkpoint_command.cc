#include "client/cli/tensor_commands/checkpoint_command.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/checkpoint/output_file.h"
#include "client/checkpoint/push_pull.h"
#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/sinks.h"
#include "client/cli/output/format.h"
#include "client/cli/output/progress_line.h"
#include "client/cli/tensor_commands/tensor_group_membership.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(300);
constexpr char kTimeoutHelp[] = "--timeout (default 300s) is for forming the group, and each call";

struct Flags {
  GroupFlags group;
  std::string file;    // push
  int root = 0;        // pull
  std::string output;  // pull
  std::string verify;  // pull
};

double GigabytesPerSecond(int64_t bytes, absl::Duration time) {
  const double seconds = Seconds(time);
  return seconds > 0 ? static_cast<double>(bytes) / 1e9 / seconds : 0;
}

checkpoint::TransferOptions ShowingProgress(Context& context, ProgressLine& progress,
                                            std::string what) {
  checkpoint::TransferOptions options;
  const Clock& clock = *context.environment().clock;
  options.on_progress = [&clock, &progress, what = std::move(what),
                         begin = std::optional<Instant>(),
                         shown = absl::InfinitePast()](int64_t bytes, int64_t of) mutable {
    const Instant now = clock.Now();
    if (!begin.has_value()) begin = now;
    // A terminal does not need to show each piece.
    if (now - shown < absl::Milliseconds(100)) return;
    shown = now;
    progress.Show(absl::StrFormat("%s: %s of %s, %.2f GB/s", what, FormatBytes(bytes),
                                  FormatBytes(of), GigabytesPerSecond(bytes, now - *begin)));
  };
  return options;
}

// `action` is such as "pushed"; `file` may be empty.
ExitCode PrintSummary(Context& context, const std::string& action, const std::string& file,
                      const client::Group& group, const checkpoint::TransferReport& report) {
  const double speed = GigabytesPerSecond(report.bytes, report.time);
  const std::string crc32 = absl::StrFormat("%08x", report.crc32);
  Json json = {{"result", action},
               {"group", group.name()},
               {"rank", group.rank()},
               {"world_size", group.size()}};
  if (!file.empty()) json["file"] = file;
  json["tensor_count"] = report.tensors;
  json["size_bytes"] = report.bytes;
  json["transfer_seconds"] = Seconds(report.time);
  json["gb_per_second"] = speed;
  json["crc32"] = crc32;
  return context.Print(
      json,
      absl::StrFormat("rank %d of %d %s%s: %s, %s, %.3f s, %.2f GB/s, crc32 %s\n", group.rank(),
                      group.size(), action, file.empty() ? "" : absl::StrCat(" ", Printable(file)),
                      Counted(report.tensors, "tensor"), FormatBytes(report.bytes),
                      Seconds(report.time), speed, crc32));
}

absl::StatusOr<ExitCode> Push(Context& context, const Flags& flags) {
  COHORT_RETURN_IF_ERROR(CheckGroupFlags(flags.group));
  const absl::StatusOr<checkpoint::File> file = checkpoint::File::Open(flags.file);
  // A file that cannot be opened is a mistake in the command line. Damage of a file is sent to the
  // other ranks, which wait for this one.
  if (!file.ok() && !absl::IsInvalidArgument(file.status())) return file.status();
  COHORT_ASSIGN_OR_RETURN(
      auto membership,
      TensorGroupMembership::Join(context, flags.group, context.TimeoutOr(kDefaultTimeout)));
  ProgressLine progress(context.printer());
  const absl::StatusOr<checkpoint::TransferReport> report = checkpoint::Push(
      membership->group(), file, ShowingProgress(context, progress, "pushing " + flags.file));
  progress.Clear();
  COHORT_RETURN_IF_ERROR(report.status());
  return PrintSummary(context, "pushed", flags.file, membership->group(), *report);
}

absl::StatusOr<ExitCode> Receive(Context& context, const Flags& flags,
                                 TensorGroupMembership& membership, checkpoint::Sink& sink,
                                 const std::string& action, const std::string& file) {
  ProgressLine progress(context.printer());
  const absl::StatusOr<checkpoint::TransferReport> report = checkpoint::Pull(
      membership.group(), flags.root, sink, ShowingProgress(context, progress, "pulling"));
  progress.Clear();
  COHORT_RETURN_IF_ERROR(report.status());
  return PrintSummary(context, action, file, membership.group(), *report);
}

absl::StatusOr<ExitCode> Pull(Context& context, const Flags& flags) {
  COHORT_RETURN_IF_ERROR(CheckGroupFlags(flags.group));
  if (flags.root >= flags.group.world_size || flags.root == flags.group.rank) {
    return absl::InvalidArgumentError(absl::StrCat("--root ", flags.root, ": rank ",
                                                   flags.group.rank, " of ", flags.group.world_size,
                                                   " pulls from another rank"));
  }
  // Made first, so that it outlives the membership. An error of this rank's file must not make the
  // other ranks wait for it.
  absl::StatusOr<checkpoint::File> compared = absl::UnknownError("nothing is compared");
  std::unique_ptr<checkpoint::Sink> sink = std::make_unique<checkpoint::CheckSink>();
  std::function<void()> remove;
  std::string action = "checked";
  if (!flags.output.empty()) {
    action = "pulled";
    auto file = checkpoint::OutputFile::Create(flags.output);
    if (file.ok()) {
      remove = [name = (*file)->temporary()] { unlink(name.c_str()); };
      sink = std::make_unique<checkpoint::FileSink>(*std::move(file));
    } else {
      sink = std::make_unique<checkpoint::FailedSink>(file.status());
    }
  } else if (!flags.verify.empty()) {
    action = "verified";
    compared = checkpoint::File::Open(flags.verify);
    if (compared.ok()) {
      sink = std::make_unique<checkpoint::VerifySink>(*compared);
    } else {
      sink = std::make_unique<checkpoint::FailedSink>(compared.status());
    }
  }
  context.SetOnInterrupt(remove);
  COHORT_ASSIGN_OR_RETURN(
      auto membership,
      TensorGroupMembership::Join(context, flags.group, context.TimeoutOr(kDefaultTimeout)));
  membership->SetOnInterrupt(remove);
  return Receive(context, flags, *membership, *sink, action,
                 flags.output.empty() ? flags.verify : flags.output);
}

}  // namespace

void AddPushCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  flags->group.rank = 0;
  CLI::App* command = AddCommand(
      parent, context, "push",
      absl::StrCat(
          "Send a checkpoint to all other ranks of a group, which pull it; the exit status "
          "says whether all of them have it. ",
          kTimeoutHelp),
      "cohort push model.safetensors --group weights --world-size 2 &\n"
      "cohort pull --group weights --rank 1 --world-size 2 --output copy.safetensors",
      [&context, flags] { return Push(context, *flags); }, "300s");
  command->add_option("FILE", flags->file, "a checkpoint in the safetensors format")->required();
  AddGroupFlags(*command, flags->group);
}

void AddPullCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = AddCommand(
      parent, context, "pull",
      absl::StrCat("Take the checkpoint that a rank of the group pushes, and check it tensor by "
                   "tensor. ",
                   kTimeoutHelp),
      "cohort pull --group weights --rank 1 --world-size 2\n"
      "cohort pull --group weights --rank 1 --world-size 2 --output copy.safetensors\n"
      "cohort pull --group weights --rank 1 --world-size 2 --verify model.safetensors",
      [&context, flags] { return Pull(context, *flags); }, "300s");
  AddGroupFlags(*command, flags->group);
  command->add_option("--root", flags->root, "the rank that pushes (default: 0)")
      ->check(WholeNumber(0));
  CLI::Option* output = command->add_option(
      "--output", flags->output, "write it to this file, which is there when it is complete");
  command->add_option("--verify", flags->verify, "compare it with this file")->excludes(output);
}

}  // namespace cohort::cli
