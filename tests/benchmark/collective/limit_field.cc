// Adds the limit, which limit_member.cc defines, to the field.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/field.h"

namespace cohort::benchmark {

void AddLimit(const FieldOptions& options, Field& field) {
  Entrant entrant;
  entrant.implementations = {"limit"};
  entrant.team = AddTeam(
      options, "limit",
      [options](const Command& arguments) {
        return OneForEachRank(absl::StrCat(options.programs, "/members/limit_member"),
                              options.members, arguments);
      },
      field);
  for (const char* way : {"cached", "streaming"}) {
    entrant.way = entrant.label = way;
    entrant.collectives = AllCollectives();
    field.entrants.push_back(entrant);
  }
  entrant.way = entrant.label = "memcpy";
  entrant.collectives = {Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll,
                         Collective::kExchange};
  field.entrants.push_back(entrant);
}

}  // namespace cohort::benchmark
