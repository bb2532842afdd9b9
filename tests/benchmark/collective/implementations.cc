#include "tests/benchmark/collective/implementations.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"

namespace cohort::benchmark {
namespace {

// Keeps only the wanted rows in each variant, and drops variants and processes without rows.
void KeepOnly(const std::vector<std::string>& wanted, Implementations& implementations) {
  const auto unwanted = [&wanted](const std::string& name) {
    return std::find(wanted.begin(), wanted.end(), name) == wanted.end();
  };
  std::vector<Variant> variants;
  for (Variant& variant : implementations.variants) {
    std::vector<std::string>& rows = variant.rows;
    rows.erase(std::remove_if(rows.begin(), rows.end(), unwanted), rows.end());
    if (!rows.empty()) variants.push_back(std::move(variant));
  }
  implementations.variants = std::move(variants);
  const auto idle = [&implementations](const std::unique_ptr<MemberProcesses>& processes) {
    return std::none_of(
        implementations.variants.begin(), implementations.variants.end(),
        [&processes](const Variant& variant) { return variant.processes == processes.get(); });
  };
  implementations.processes.erase(
      std::remove_if(implementations.processes.begin(), implementations.processes.end(), idle),
      implementations.processes.end());
}

// A member's command, on the host of its rank.
Command OnHost(const testing::HostNetwork& hosts, Command command) {
  const auto flag = std::find(command.begin(), command.end(), "--rank");
  int rank = 0;
  if (flag == command.end() || !absl::SimpleAtoi(*std::next(flag), &rank)) return command;
  command.insert(command.end(), {"--address", testing::HostNetwork::Address(rank)});
  return hosts.On(rank, std::move(command));
}

}  // namespace

Implementations MakeImplementations(const ImplementationOptions& options) {
  Implementations implementations;
  AddCohort(options, implementations);
  AddOpenMpi(options, implementations);
  AddGloo(options, implementations);
  AddLimit(options, implementations);
  AddPython(options, implementations);
  if (!options.names.empty()) KeepOnly(options.names, implementations);
  return implementations;
}

MemberProcesses* AddMemberProcesses(
    const ImplementationOptions& options, const std::string& name,
    std::function<std::vector<Command>(const Command& arguments)> commands,
    Implementations& implementations) {
  MemberProcessesOptions processes;
  processes.name = name;
  processes.members = options.members;
  processes.scratch = options.scratch;
  processes.deadline = options.deadline;
  processes.commands = std::move(commands);
  if (options.hosts != nullptr) {
    processes.commands = [on_one = std::move(processes.commands),
                          &hosts = *options.hosts](const Command& arguments) {
      std::vector<Command> all = on_one(arguments);
      for (Command& command : all) command = OnHost(hosts, std::move(command));
      return all;
    };
  }
  implementations.processes.push_back(std::make_unique<MemberProcesses>(std::move(processes)));
  return implementations.processes.back().get();
}

}  // namespace cohort::benchmark
