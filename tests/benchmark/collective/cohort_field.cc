// Cohort: its ranks as members, with memory that the group hands out and with the caller's own; and
// once more over sockets.
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
  const auto add = [&](const std::string& name, const std::string& program) {
    Entrant entrant;
    entrant.implementations = {name};
    entrant.team = AddTeam(
        options, name,
        [options, program](const Command& arguments) {
          std::vector<Command> commands = OneForEachRank(
              absl::StrCat(options.programs, "/", program), options.members, arguments);
          commands.push_back({options.coordinator, "--listen",
                              absl::StrCat("unix:", FolderOf(arguments), "/coordinator"),
                              "--metrics-listen", "", "--journal", "memory"});
          return commands;
        },
        field);
    entrant.collectives = AllCollectives();
    entrant.tells_memory = true;
    for (const Memory memory : {Memory::kRegistered, Memory::kPlain}) {
      if (name == "cohort-tcp" && memory == Memory::kRegistered) continue;
      entrant.memory = memory;
      entrant.label = MemoryName(memory);
      field.entrants.push_back(entrant);
    }
  };
  add("cohort", "cohort_member");
  add("cohort-tcp", "cohort_tcp_member");
}

}  // namespace cohort::benchmark
