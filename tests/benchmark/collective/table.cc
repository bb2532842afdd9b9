#include "tests/benchmark/collective/table.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::benchmark {
namespace {

constexpr char kLimit[] = "limit";

// "0.138 us", "8.12 us", "812 us", "8.12 ms": three digits that can be read at a glance.
std::string Readable(double us) {
  const auto three_digits = [](double value, const char* unit) {
    return absl::StrFormat("%.*f %s",
                           value < 1     ? 3
                           : value < 10  ? 2
                           : value < 100 ? 1
                                         : 0,
                           value, unit);
  };
  if (us < 1e3) return three_digits(us, "us");
  if (us < 1e6) return three_digits(us / 1e3, "ms");
  return three_digits(us / 1e6, "s");
}

std::string ReadableBytes(int64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return absl::StrCat(bytes >> 20, " MiB");
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return absl::StrCat(bytes >> 10, " KiB");
  return absl::StrCat(bytes, " B");
}

double MedianUs(const Result& result) { return Median(result.seconds) * 1e6; }

}  // namespace

void Table::Add(Collective collective, int64_t bytes, const std::vector<Result>& results) {
  double limit_us = 0;
  for (const Result& result : results) {
    if (result.status.ok() && result.implementation == kLimit) limit_us = MedianUs(result);
  }
  if (!json_ && header_printed_) std::printf("\n");
  for (const Result& result : results) {
    const Work work = {collective, bytes, result.memory, ""};
    if (!result.status.ok()) {
      ++failures_;
      std::fprintf(stderr, "%s %d, %d members, %s: %s\n", CollectiveName(collective).c_str(),
                   static_cast<int>(bytes), members_, result.implementation.c_str(),
                   result.status.ToString().c_str());
      continue;
    }
    const Row row = MakeRow(work, result, limit_us);
    if (json_) {
      std::printf("%s\n", row.dump().c_str());
    } else {
      Print(row);
    }
  }
  std::fflush(stdout);
}

Row Table::MakeRow(const Work& work, const Result& result, double limit_us) const {
  const auto [min, max] = std::minmax_element(result.seconds.begin(), result.seconds.end());
  const double median_us = MedianUs(result);
  Row row;
  row["section"] = "collective";
  row["operation"] = CollectiveName(work.collective);
  row["members"] = members_;
  row["bytes"] = work.bytes;
  row["implementation"] = result.implementation;
  if (result.names_memory) row["memory"] = MemoryName(result.memory);
  row["median_us"] = Rounded(median_us, 3);
  row["min_us"] = Rounded(*min * 1e6, 3);
  row["max_us"] = Rounded(*max * 1e6, 3);
  row["bus_gb_s"] = Rounded(BusBytes(work, members_) / median_us / 1e3, 3);
  row["iterations"] = result.iterations;
  row["rounds"] = result.seconds.size();
  if (!result.label.empty()) row["best"] = result.label;
  if (limit_us > 0) row["times_limit"] = Rounded(median_us / limit_us, 2);
  return row;
}

void Table::Print(const Row& row) {
  if (!header_printed_) {
    std::printf("%-14s %7s %8s %-15s %-10s %9s %9s %9s %9s %7s  %s\n", "operation", "members",
                "size", "implementation", "memory", "median", "min", "max", "bus GB/s", "x limit",
                "best variant");
    header_printed_ = true;
  }
  std::printf(
      "%-14s %7d %8s %-15s %-10s %9s %9s %9s %9.2f %7s  %s\n", row.value("operation", "").c_str(),
      row.value("members", 0), ReadableBytes(row.value("bytes", int64_t{0})).c_str(),
      row.value("implementation", "").c_str(), row.value("memory", "").c_str(),
      Readable(row.value("median_us", 0.0)).c_str(), Readable(row.value("min_us", 0.0)).c_str(),
      Readable(row.value("max_us", 0.0)).c_str(), row.value("bus_gb_s", 0.0),
      row.contains("times_limit") ? absl::StrFormat("%.2f", row.value("times_limit", 0.0)).c_str()
                                  : "",
      row.value("best", "").c_str());
}

}  // namespace cohort::benchmark
