// Cohort's ranks as members, in the three forms of a group, with memory from the group and with the
// caller's own. Also the same over sockets, plain and with mutual TLS, and the cost of a bare call
// to a worker.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/implementations.h"

namespace cohort::benchmark {
namespace {

// A rank's command, with mutual TLS between hosts.
Command WithTls(const std::string& certificates, const Command& command) {
  Command with_tls = {"/usr/bin/env", absl::StrCat("COHORT_TLS_CA=", certificates, "/ca.crt"),
                      absl::StrCat("COHORT_TLS_CERTIFICATE=", certificates, "/rank/tls.crt"),
                      absl::StrCat("COHORT_TLS_KEY=", certificates, "/rank/tls.key")};
  with_tls.insert(with_tls.end(), command.begin(), command.end());
  return with_tls;
}

}  // namespace

std::string FolderOf(const Command& arguments) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--folder") return arguments[i + 1];
  }
  return "";
}

Command CoordinatorCommand(const ImplementationOptions& options, const Command& arguments) {
  return {options.coordinator, "--listen",
          absl::StrCat("unix:", FolderOf(arguments), "/coordinator"),
          "--metrics-listen", "", "--journal", "memory"};
}

void AddCohort(const ImplementationOptions& options, Implementations& implementations) {
  const auto add = [&](const std::string& name, const std::string& program, bool workers,
                       const std::string& certificates = "") {
    Variant variant;
    variant.rows = {name};
    variant.processes = AddMemberProcesses(
        options, name,
        [options, program, workers, certificates](const Command& arguments) {
          const std::string folder = FolderOf(arguments);
          std::vector<Command> commands = OneForEachRank(
              absl::StrCat(options.programs, "/members/", program), options.members, arguments);
          for (Command& command : commands) {
            if (!certificates.empty()) command = WithTls(certificates, command);
          }
          commands.push_back(CoordinatorCommand(options, arguments));
          for (int rank = 0; workers && rank < options.members; ++rank) {
            commands.push_back({options.worker, "--coordinator",
                                absl::StrCat("unix:", folder, "/coordinator"), "--listen",
                                absl::StrCat("unix:", folder, "/worker-", rank), "--metrics-listen",
                                ""});
          }
          return commands;
        },
        implementations);
    variant.collectives = AllCollectives();
    variant.names_memory = true;
    if (name == "grpc") {
      // The least cost of a small call.
      variant.names_memory = false;
      variant.collectives = {Collective::kAllReduce};
      variant.max_bytes = 4 << 10;
      implementations.variants.push_back(variant);
      return;
    }
    for (const Memory memory : {Memory::kRegistered, Memory::kPlain}) {
      if (program == "cohort_tcp_member" && memory == Memory::kRegistered) continue;
      variant.memory = memory;
      variant.label = MemoryName(memory);
      implementations.variants.push_back(variant);
    }
  };
  add("cohort", "cohort_member", false);
  add("cohort-attached", "cohort_attached_member", true);
  add("cohort-daemon", "cohort_daemon_member", true);
  add("cohort-tcp", "cohort_tcp_member", false);
  if (!options.certificates.empty()) {
    add("cohort-tcp-tls", "cohort_tcp_member", false, options.certificates);
  }
  add("grpc", "grpc_member", true);
}

}  // namespace cohort::benchmark
