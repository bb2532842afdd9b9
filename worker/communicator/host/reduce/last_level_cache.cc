#include "worker/communicator/host/reduce/last_level_cache.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cohort::worker {
namespace {

constexpr int64_t kUnknown = int64_t{16} << 20;
constexpr int64_t kMost = int64_t{1} << 40;

// "32768K", "1M" or "65536"; 0: neither.
int64_t ParseSize(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "K")) {
    unit = int64_t{1} << 10;
  } else if (absl::ConsumeSuffix(&text, "M")) {
    unit = int64_t{1} << 20;
  }
  int64_t size = 0;
  if (!absl::SimpleAtoi(text, &size) || size < 0 || size > kMost / unit) return 0;
  return size * unit;
}

}  // namespace

int64_t LastLevelCacheBytes(const std::string& caches) {
  int64_t largest = 0;
  for (int index = 0;; ++index) {
    std::string size;
    if (!(std::ifstream(absl::StrCat(caches, "/index", index, "/size")) >> size)) break;
    largest = std::max(largest, ParseSize(size));
  }
  return largest > 0 ? largest : kUnknown;
}

}  // namespace cohort::worker
