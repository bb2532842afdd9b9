#include "tests/benchmark/harness/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::benchmark {
namespace {

// "812", "8.12 ms": three digits that can be read at a glance.
std::string Readable(double us) {
  if (us < 1e3) return absl::StrFormat("%.0f us", us);
  if (us < 1e6) return absl::StrFormat("%.2f ms", us / 1e3);
  return absl::StrFormat("%.2f s", us / 1e6);
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Summary Summarise(std::vector<absl::Duration> latencies) {
  std::vector<double> us;
  us.reserve(latencies.size());
  for (absl::Duration latency : latencies) us.push_back(absl::ToDoubleMicroseconds(latency));
  Summary summary;
  if (us.empty()) return summary;
  const auto [min, max] = std::minmax_element(us.begin(), us.end());
  summary.min_us = *min;
  summary.max_us = *max;
  summary.median_us = Median(std::move(us));
  return summary;
}

double Rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

void Report::Add(const Row& row) {
  if (json_) {
    std::printf("%s\n", row.dump().c_str());
  } else if (row.value("section", "") == "rendezvous") {
    PrintRendezvous(row);
  } else {
    PrintPairs(row);
  }
  std::fflush(stdout);
}

void Report::PrintRendezvous(const Row& row) {
  if (!header_printed_) {
    std::printf("%-18s %7s %6s %-10s %-20s %-7s %10s %10s %10s %9s %7s %5s\n", "operation",
                "members", "bytes", "connected", "implementation", "journal", "median", "min",
                "max", "ops/s", "x gRPC", "runs");
    header_printed_ = true;
  }
  const std::string operation = row.value("operation", "");
  const std::string connections = row.value("connections", "");
  const int members = row.value("members", 0);
  const std::string config = absl::StrCat(operation, "/", members, "/", connections);
  if (config != last_config_) std::printf("\n");
  last_config_ = config;
  std::printf(
      "%-18s %7d %6d %-10s %-20s %-7s %10s %10s %10s %9s %7s %5d\n", operation.c_str(), members,
      row.value("bytes", 0), connections.c_str(), row.value("implementation", "").c_str(),
      row.value("journal", "").c_str(), Readable(row.value("median_us", 0.0)).c_str(),
      Readable(row.value("min_us", 0.0)).c_str(), Readable(row.value("max_us", 0.0)).c_str(),
      row.contains("ops_per_s") ? absl::StrFormat("%.0f", row.value("ops_per_s", 0.0)).c_str() : "",
      row.contains("times_bare_grpc")
          ? absl::StrFormat("%.2f", row.value("times_bare_grpc", 0.0)).c_str()
          : "",
      row.value("repetitions", 0));
}

void Report::PrintPairs(const Row& row) {
  std::string line = absl::StrCat(row.value("section", ""), " ", row.value("operation", ""), "\n");
  for (const auto& [name, value] : row.items()) {
    if (name == "section" || name == "operation") continue;
    absl::StrAppendFormat(&line, "  %-28s %s\n", name, value.dump());
  }
  std::printf("%s\n", line.c_str());
}

}  // namespace cohort::benchmark
