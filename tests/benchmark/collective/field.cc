#include "tests/benchmark/collective/field.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"

namespace cohort::benchmark {
namespace {

// Keeps only the wanted rows in each entrant, and drops entrants and teams without rows.
void KeepOnly(const std::vector<std::string>& wanted, Field& field) {
  const auto unwanted = [&wanted](const std::string& name) {
    return std::find(wanted.begin(), wanted.end(), name) == wanted.end();
  };
  std::vector<Entrant> entrants;
  for (Entrant& entrant : field.entrants) {
    std::vector<std::string>& rows = entrant.implementations;
    rows.erase(std::remove_if(rows.begin(), rows.end(), unwanted), rows.end());
    if (!rows.empty()) entrants.push_back(std::move(entrant));
  }
  field.entrants = std::move(entrants);
  const auto idle = [&field](const std::unique_ptr<Team>& team) {
    return std::none_of(field.entrants.begin(), field.entrants.end(),
                        [&team](const Entrant& entrant) { return entrant.team == team.get(); });
  };
  field.teams.erase(std::remove_if(field.teams.begin(), field.teams.end(), idle),
                    field.teams.end());
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

Field MakeField(const FieldOptions& options) {
  Field field;
  AddCohort(options, field);
  AddOpenMpi(options, field);
  AddGloo(options, field);
  AddLimit(options, field);
  if (!options.implementations.empty()) KeepOnly(options.implementations, field);
  return field;
}

Team* AddTeam(const FieldOptions& options, const std::string& name,
              std::function<std::vector<Command>(const Command& arguments)> commands,
              Field& field) {
  TeamOptions team;
  team.name = name;
  team.members = options.members;
  team.scratch = options.scratch;
  team.deadline = options.deadline;
  team.commands = std::move(commands);
  if (options.hosts != nullptr) {
    team.commands = [on_one = std::move(team.commands),
                     &hosts = *options.hosts](const Command& arguments) {
      std::vector<Command> all = on_one(arguments);
      for (Command& command : all) command = OnHost(hosts, std::move(command));
      return all;
    };
  }
  field.teams.push_back(std::make_unique<Team>(std::move(team)));
  return field.teams.back().get();
}

}  // namespace cohort::benchmark
