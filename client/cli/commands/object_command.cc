// `cohort object`: objects between ranks, from and to files and pipes.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/context/group_membership.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(300);

struct Flags {
  MembershipFlags membership;
  int to = 0;
  std::string from = "any";
  int root = 0;
  std::string tag;   // send, recv
  std::string name;  // rounds
  std::string file = "-";
  std::string output;
  std::string output_dir;
};

Json Header(const Flags& flags) {
  return {{"group", flags.membership.group}, {"rank", flags.membership.rank}};
}

// One object to --output, to standard output, or into `json`, which is then printed.
absl::Status PrintObject(Context& context, const Flags& flags, Json json,
                         const std::string& object) {
  json["size_bytes"] = object.size();
  if (!flags.output.empty()) {
    COHORT_RETURN_IF_ERROR(WriteFile(flags.output, object));
    json["output"] = flags.output;
  } else if (context.json()) {
    json["object_base64"] = absl::Base64Escape(object);
  } else {
    context.printer().PrintValue(object);
  }
  if (context.json()) context.printer().PrintJson(json);
  return absl::OkStatus();
}

// Objects in order of rank: into files rank-N of --output-dir, into JSON, or one after the other
// with a title each.
absl::Status PrintObjects(Context& context, const Flags& flags, const client::ObjectList& objects) {
  if (!flags.output_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(flags.output_dir, error);
    if (error) {
      return absl::InternalError(
          absl::StrCat("cannot make folder ", flags.output_dir, ": ", error.message()));
    }
  }
  Json list = Json::array();
  for (size_t rank = 0; rank < objects.size(); ++rank) {
    const absl::string_view object = objects[rank];
    Json json = {{"rank", rank}, {"size_bytes", object.size()}};
    if (!flags.output_dir.empty()) {
      const std::string file = absl::StrCat(flags.output_dir, "/rank-", rank);
      COHORT_RETURN_IF_ERROR(WriteFile(file, object));
      json["output"] = file;
    } else if (context.json()) {
      json["object_base64"] = absl::Base64Escape(object);
    } else {
      context.printer().PrintText(absl::StrCat("rank ", rank, ": ",
                                               FormatBytes(static_cast<int64_t>(object.size())),
                                               "\n", object, "\n"));
    }
    list.push_back(std::move(json));
  }
  if (context.json()) {
    Json json = Header(flags);
    json["objects"] = std::move(list);
    context.printer().PrintJson(json);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GroupMembership>> Join(Context& context, const Flags& flags) {
  return GroupMembership::Join(context, flags.membership, context.TimeoutOr(kDefaultTimeout));
}

absl::StatusOr<ExitCode> Send(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::string object, ReadPayload(context, flags.file));
  COHORT_ASSIGN_OR_RETURN(auto membership, Join(context, flags));
  // When Send returns, the coordinator has the object and keeps it for its reader, also after
  // Leave.
  COHORT_RETURN_IF_ERROR(membership->Release(
      membership->group().Send(object, flags.to, flags.tag, membership->Remaining())));
  Json json = Header(flags);
  json["to"] = flags.to;
  json["tag"] = flags.tag;
  json["size_bytes"] = object.size();
  return context.Print(json, absl::StrCat("sent ", FormatBytes(static_cast<int64_t>(object.size())),
                                          " to rank ", flags.to, "\n"));
}

// Absent: any.
absl::StatusOr<std::optional<int>> ParseSource(const std::string& from) {
  if (from == "any") return std::optional<int>();
  int source = 0;
  if (absl::SimpleAtoi(from, &source) && source >= 0) return std::optional<int>(source);
  return absl::InvalidArgumentError(
      absl::StrCat("--from: '", from, "' is neither a rank nor 'any'"));
}

absl::StatusOr<client::ReceivedObject> ReceiveFrom(client::ProcessGroup& group,
                                                   std::optional<int> source,
                                                   const std::string& tag, absl::Duration timeout) {
  if (!source.has_value()) return group.ReceiveAny(tag, timeout);
  client::ReceivedObject object;
  object.source = *source;
  COHORT_ASSIGN_OR_RETURN(object.bytes, group.Receive(*source, tag, timeout));
  return object;
}

absl::StatusOr<ExitCode> Receive(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::optional<int> source, ParseSource(flags.from));
  COHORT_ASSIGN_OR_RETURN(auto membership, Join(context, flags));
  const auto object = ReceiveFrom(membership->group(), source, flags.tag, membership->Remaining());
  COHORT_RETURN_IF_ERROR(membership->Release(object.status()));
  Json json = Header(flags);
  json["from"] = object->source;
  json["tag"] = flags.tag;
  COHORT_RETURN_IF_ERROR(PrintObject(context, flags, std::move(json), object->bytes));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Broadcast(Context& context, const Flags& flags) {
  const bool is_root = flags.membership.rank == flags.root;
  std::string own;
  if (is_root) {
    COHORT_ASSIGN_OR_RETURN(own, ReadPayload(context, flags.file));
  }
  COHORT_ASSIGN_OR_RETURN(auto membership, Join(context, flags));
  const auto object = membership->group().Broadcast(
      own, flags.root, membership->RoundOptions(flags.name, absl::StrCat("rank ", flags.root)));
  COHORT_RETURN_IF_ERROR(membership->Release(object.status()));
  Json json = Header(flags);
  json["root"] = flags.root;
  if (!is_root) {
    COHORT_RETURN_IF_ERROR(PrintObject(context, flags, std::move(json), *object));
    return ExitCode::kOk;
  }
  json["size_bytes"] = own.size();
  return context.Print(
      json, absl::StrCat("broadcast ", FormatBytes(static_cast<int64_t>(own.size())), "\n"));
}

absl::StatusOr<ExitCode> Gather(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::string own, ReadPayload(context, flags.file));
  COHORT_ASSIGN_OR_RETURN(auto membership, Join(context, flags));
  const auto objects =
      membership->group().Gather(own, flags.root, membership->RoundOptions(flags.name, "gather"));
  COHORT_RETURN_IF_ERROR(membership->Release(objects.status()));
  if (flags.membership.rank == flags.root) {
    COHORT_RETURN_IF_ERROR(PrintObjects(context, flags, *objects));
    return ExitCode::kOk;
  }
  Json json = Header(flags);
  json["root"] = flags.root;
  json["size_bytes"] = own.size();
  return context.Print(json, absl::StrCat("gave ", FormatBytes(static_cast<int64_t>(own.size())),
                                          " to rank ", flags.root, "\n"));
}

absl::StatusOr<ExitCode> AllGather(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::string own, ReadPayload(context, flags.file));
  COHORT_ASSIGN_OR_RETURN(auto membership, Join(context, flags));
  const auto objects =
      membership->group().AllGather(own, membership->RoundOptions(flags.name, "all-gather"));
  COHORT_RETURN_IF_ERROR(membership->Release(objects.status()));
  COHORT_RETURN_IF_ERROR(PrintObjects(context, flags, *objects));
  return ExitCode::kOk;
}

}  // namespace

void AddObjectCommand(CLI::App& parent, Context& context) {
  CLI::App& noun = *AddNoun(parent, "object", "Objects between ranks, from and to files and pipes");
  const auto flags = std::make_shared<Flags>();

  CLI::App* send = AddCommand(
      noun, context, "send",
      "Join, give an object to another rank, leave; the object stays for its reader",
      "echo hello | cohort object send demo --rank 0 --world-size 2 --to 1\n"
      "cohort object send demo --rank 0 --world-size 2 --to 1 --tag config config.json",
      [&context, flags] { return Send(context, *flags); }, "5m");
  send->add_option("--to", flags->to, "the reader's rank")->required()->check(WholeNumber(0));

  CLI::App* receive = AddCommand(
      noun, context, "recv", "Join, take the next object meant for this rank, leave",
      "cohort object recv demo --rank 1 --world-size 2 --from 0\n"
      "cohort object recv demo --rank 1 --world-size 2 --output config.json --tag config",
      [&context, flags] { return Receive(context, *flags); }, "5m");
  receive->add_option("--from", flags->from, "the sender's rank, or 'any' (default)");

  CLI::App* broadcast = AddCommand(
      noun, context, "broadcast", "Join, pass the root's object to all, leave",
      "cohort object broadcast demo --rank 0 --world-size 3 --root 0 weights.idx\n"
      "cohort object broadcast demo --rank 1 --world-size 3 --root 0 > weights.idx",
      [&context, flags] { return Broadcast(context, *flags); }, "5m");
  CLI::App* gather = AddCommand(
      noun, context, "gather", "Join, give the objects of all ranks to the root, leave",
      "hostname | cohort object gather demo --rank 1 --world-size 2 --root 0\n"
      "hostname | cohort object gather demo --rank 0 --world-size 2 --root 0 "
      "--output-dir hosts",
      [&context, flags] { return Gather(context, *flags); }, "5m");
  CLI::App* all_gather = AddCommand(
      noun, context, "all-gather", "Join, give the objects of all ranks to all ranks, leave",
      "hostname | cohort object all-gather demo --rank 0 --world-size 2 --json",
      [&context, flags] { return AllGather(context, *flags); }, "5m");

  for (CLI::App* command : {send, receive, broadcast, gather, all_gather}) {
    AddMembershipFlags(*command, flags->membership);
  }
  for (CLI::App* command : {send, receive}) {
    command->add_option("--tag", flags->tag, "tag of the mailbox (default: the untagged one)");
  }
  for (CLI::App* command : {broadcast, gather, all_gather}) {
    command->add_option("--name", flags->name, "name of the round (default: the unnamed one)");
  }
  for (CLI::App* command : {broadcast, gather}) {
    command->add_option("--root", flags->root, "the root's rank")
        ->required()
        ->check(WholeNumber(0));
  }
  for (CLI::App* command : {receive, broadcast}) {
    command->add_option("--output", flags->output, "write the object to this file")
        ->type_name("FILE");
  }
  for (CLI::App* command : {gather, all_gather}) {
    command->add_option("--output-dir", flags->output_dir, "write the objects to DIR/rank-N")
        ->type_name("DIR");
  }
  broadcast->add_option("FILE", flags->file, "the root's object; '-' (default) is standard input");
  for (CLI::App* command : {send, gather, all_gather}) {
    command->add_option("FILE", flags->file, "this rank's object; '-' (default) is standard input");
  }
}

}  // namespace cohort::cli
