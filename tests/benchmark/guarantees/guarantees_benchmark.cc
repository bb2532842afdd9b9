// Measures the guarantees of Cohort, which have nothing to be compared with. Ends with 1 if one
// fails.
//
//   tests/benchmark/run.sh guarantees                          # all four, about ten minutes
//   tests/benchmark/run.sh guarantees --json --guarantee missing
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/benchmark/guarantees/guarantees.h"
#include "tests/benchmark/rendezvous/rendezvous_table.h"

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  struct Guarantee {
    const char* name;
    absl::StatusOr<Row> (*measure)(const CoordinatorOptions& options, bool quick);
  };
  const std::vector<Guarantee> guarantees = {{"million-barriers", MillionBarriers},
                                             {"parked-cost", ParkedCost},
                                             {"missing", Missing},
                                             {"sigterm", Sigterm}};
  CoordinatorOptions coordinator;
  std::vector<std::string> wanted;
  bool json = false;
  bool quick = false;
  CLI::App app("Measures the guarantees of Cohort");
  app.add_flag("--json", json, "one JSON object per line");
  app.add_flag("--quick", quick, "fewer barriers and parked calls");
  app.add_option("--guarantee", wanted,
                 "only these: million-barriers, parked-cost, missing, sigterm");
  app.add_option("--coordinator", coordinator.program, "the path of cohort-coordinator")
      ->required();
  app.add_option("--journal", coordinator.journal, "memory or sqlite");
  app.add_option("--scratch", coordinator.scratch, "a folder for logs, port files and journals");
  CLI11_PARSE(app, argc, argv);

  RaiseDescriptorLimit();
  Report report(json);
  bool all_hold = true;
  for (const Guarantee& guarantee : guarantees) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), guarantee.name) == wanted.end())
      continue;
    const absl::StatusOr<Row> row = guarantee.measure(coordinator, quick);
    if (row.ok()) {
      report.Add(*row);
      all_hold = all_hold && row->value("holds", false);
    } else {
      std::fprintf(stderr, "%s: %s\n", guarantee.name, row.status().ToString().c_str());
      all_hold = false;
    }
  }
  return all_hold ? 0 : 1;
}
