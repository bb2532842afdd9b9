// Cohort's ranks as members, in the three forms of a group, with memory from the group and with the
// caller's own. Also the same over sockets, and the cost of a bare call to a worker.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/field.h"

namespace cohort::benchmark {
namespace {

// The folder that all members of one start share.
std::string FolderOf(const Command& arguments) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--folder") return arguments[i + 1];
  }
  return "";
}

}  // namespace

void AddCohort(const FieldOptions& options, Field& field) {
  const auto add = [&](const std::string& name, const std::string& program, bool workers) {
    Entrant entrant;
    entrant.implementations = {name};
    entrant.team = AddTeam(
        options, name,
        [options, program, workers](const Command& arguments) {
          const std::string folder = FolderOf(arguments);
          const std::string coordinator = absl::StrCat("unix:", folder, "/coordinator");
          std::vector<Command> commands = OneForEachRank(
              absl::StrCat(options.programs, "/members/", program), options.members, arguments);
          commands.push_back({options.coordinator, "--listen", coordinator, "--metrics-listen", "",
                              "--journal", "memory"});
          for (int rank = 0; workers && rank < options.members; ++rank) {
            commands.push_back({options.worker, "--coordinator", coordinator, "--listen",
                                absl::StrCat("unix:", folder, "/worker-", rank), "--metrics-listen",
                                ""});
          }
          return commands;
        },
        field);
    entrant.collectives = AllCollectives();
    entrant.names_memory = true;
    if (name == "grpc") {
      // The floor of small calls.
      entrant.names_memory = false;
      entrant.collectives = {Collective::kAllReduce};
      entrant.max_bytes = 4 << 10;
      field.entrants.push_back(entrant);
      return;
    }
    for (const Memory memory : {Memory::kRegistered, Memory::kPlain}) {
      if (name == "cohort-tcp" && memory == Memory::kRegistered) continue;
      entrant.memory = memory;
      entrant.label = MemoryName(memory);
      field.entrants.push_back(entrant);
    }
  };
  add("cohort", "cohort_member", false);
  add("cohort-attached", "cohort_attached_member", true);
  add("cohort-daemon", "cohort_daemon_member", true);
  add("cohort-tcp", "cohort_tcp_member", false);
  add("grpc", "grpc_member", true);
}

}  // namespace cohort::benchmark
