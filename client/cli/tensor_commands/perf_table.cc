#include "client/cli/tensor_commands/perf_table.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::cli {
namespace {

using perf::Figures;

struct Bandwidth {
  double algorithm = 0;
  double bus = 0;
};

Bandwidth BandwidthOf(const perf::Case& run, const Figures& figures, int ranks) {
  const double algorithm = perf::AlgorithmBandwidth(run, figures.median_us * 1e-6);
  return {algorithm, algorithm * perf::BusFactor(run.operation, ranks)};
}

std::string Columns(const perf::Case& run, const std::optional<Figures>& figures, int ranks) {
  if (!figures.has_value()) return absl::StrFormat("%11s %8s %8s %7s", "-", "-", "-", "-");
  const Bandwidth bandwidth = BandwidthOf(run, *figures, ranks);
  const std::string wrong = figures->wrong.has_value() ? absl::StrCat(*figures->wrong) : "-";
  return absl::StrFormat("%11.1f %8.2f %8.2f %7s", figures->median_us, bandwidth.algorithm,
                         bandwidth.bus, wrong);
}

Json ToJson(const perf::Case& run, const Figures& figures, int ranks) {
  const Bandwidth bandwidth = BandwidthOf(run, figures, ranks);
  Json json = {{"time_us", figures.median_us},
               {"mean_us", figures.mean_us},
               {"min_us", figures.min_us},
               {"algbw_gb_per_second", bandwidth.algorithm},
               {"busbw_gb_per_second", bandwidth.bus},
               {"iteration_count", figures.iterations}};
  if (figures.wrong.has_value()) json["wrong_count"] = *figures.wrong;
  return json;
}

}  // namespace

std::string PerfTitles() {
  return absl::StrFormat(
      "%-14s %12s %12s %7s %11s %4s  %-37s  %-37s\n"
      "%-14s %12s %12s %7s %11s %4s %11s %8s %8s %7s %12s %8s %8s %7s\n",
      "operation", "size", "count", "type", "reduction", "root", "       out of place",
      "       in place", "", "(B)", "(elements)", "", "", "", "time (us)", "algbw", "busbw",
      "#wrong", "time (us)", "algbw", "busbw", "#wrong");
}

std::string PerfLine(const perf::Row& row, int ranks) {
  const perf::Case& run = row.run;
  return absl::StrFormat("%-14s %12d %12d %7s %11s %4s %s  %s\n",
                         perf::OperationName(run.operation), run.bytes(), run.count,
                         NameOf(run.type), Reduces(run.operation) ? NameOf(run.reduction.op) : "-",
                         HasRoot(run.operation) ? absl::StrCat(run.root) : "-",
                         Columns(run, row.out_of_place, ranks), Columns(run, row.in_place, ranks));
}

Json PerfJson(const perf::Row& row, int ranks, const std::string& memory) {
  const perf::Case& run = row.run;
  Json json = {{"operation", std::string(perf::OperationName(run.operation))},
               {"size_bytes", run.bytes()},
               {"element_count", run.count},
               {"type", std::string(NameOf(run.type))}};
  if (Reduces(run.operation)) json["reduction"] = std::string(NameOf(run.reduction.op));
  if (HasRoot(run.operation)) json["root"] = run.root;
  json["world_size"] = ranks;
  json["memory"] = memory;
  if (row.out_of_place.has_value()) json["out_of_place"] = ToJson(run, *row.out_of_place, ranks);
  if (row.in_place.has_value()) json["in_place"] = ToJson(run, *row.in_place, ranks);
  return json;
}

int64_t WrongOf(const perf::Row& row) {
  int64_t wrong = 0;
  for (const auto& figures : {row.out_of_place, row.in_place}) {
    if (figures.has_value()) wrong += figures->wrong.value_or(0);
  }
  return wrong;
}

}  // namespace cohort::cli
