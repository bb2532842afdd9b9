// Cohort and torch.distributed over Gloo, called from Python.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/implementations.h"

namespace cohort::benchmark {

void AddPython(const ImplementationOptions& options, Implementations& implementations) {
  if (options.python.empty()) return;
  const auto add = [&](const std::string& name, const std::vector<Memory>& memories) {
    Variant variant;
    variant.rows = {name};
    variant.processes = AddMemberProcesses(
        options, name,
        [options, name](const Command& arguments) {
          std::vector<Command> commands;
          for (int rank = 0; rank < options.members; ++rank) {
            Command command = {options.python,     options.python_member, "--implementation",
                               name,               "--package",           options.python_package,
                               "--rank",           absl::StrCat(rank)};
            command.insert(command.end(), arguments.begin(), arguments.end());
            commands.push_back(std::move(command));
          }
          if (name != "torch-gloo") commands.push_back(CoordinatorCommand(options, arguments));
          return commands;
        },
        implementations);
    variant.collectives = AllCollectives();
    variant.names_memory = true;
    for (const Memory memory : memories) {
      variant.memory = memory;
      variant.label = MemoryName(memory);
      implementations.variants.push_back(variant);
    }
  };
  add("cohort-numpy", {Memory::kRegistered, Memory::kPlain});
  add("cohort-torch", {Memory::kRegistered, Memory::kPlain});
  add("torch-gloo", {Memory::kPlain});
}

}  // namespace cohort::benchmark
