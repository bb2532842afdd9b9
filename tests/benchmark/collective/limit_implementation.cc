// The limit of the memory, which limit_member.cc defines.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/implementations.h"

namespace cohort::benchmark {

void AddLimit(const ImplementationOptions& options, Implementations& implementations) {
  Variant variant;
  variant.rows = {"limit"};
  variant.processes = AddMemberProcesses(
      options, "limit",
      [options](const Command& arguments) {
        return OneForEachRank(absl::StrCat(options.programs, "/members/memory_limit/limit_member"),
                              options.members, arguments);
      },
      implementations);
  for (const char* stores : {"cached", "streaming"}) {
    variant.algorithm = variant.label = stores;
    variant.collectives = AllCollectives();
    implementations.variants.push_back(variant);
  }
  variant.algorithm = variant.label = "memcpy";
  variant.collectives = {Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll,
                         Collective::kExchange};
  implementations.variants.push_back(variant);
}

}  // namespace cohort::benchmark
