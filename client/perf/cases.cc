#include "client/perf/cases.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cohort::perf {
namespace {

constexpr int64_t kPartAlignment = 16;  // bytes

}  // namespace

absl::string_view OperationName(Collective operation) {
  return operation == Collective::kExchange ? "sendrecv" : NameOf(operation);
}

std::optional<Collective> FindOperation(absl::string_view name) {
  for (const Collective operation : kOperations) {
    if (OperationName(operation) == name) return operation;
  }
  return std::nullopt;
}

bool RunsOutOfPlace(Collective operation) { return operation != Collective::kBroadcast; }

bool RunsInPlace(Collective operation) {
  return operation != Collective::kAllToAll && operation != Collective::kExchange;
}

Case MakeCase(Collective operation, int64_t bytes, DataType type, const Reduction& reduction,
              int root, int ranks) {
  Case run = {operation, type, reduction, HasRoot(operation) ? root : 0};
  const int64_t parts = HasDim(operation) ? ranks : 1;
  int64_t part = std::max<int64_t>(bytes / SizeOf(type) / parts, 1);
  const int64_t aligned = kPartAlignment / SizeOf(type);
  if (parts > 1 && part > aligned) part -= part % aligned;
  run.count = part * parts;
  return run;
}

double AlgorithmBandwidth(const Case& run, double seconds) {
  return seconds > 0 ? static_cast<double>(run.bytes()) / 1e9 / seconds : 0;
}

double BusFactor(Collective operation, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (operation == Collective::kAllReduce) return 2 * share;
  return HasDim(operation) ? share : 1;
}

absl::StatusOr<int64_t> ParseSize(absl::string_view text) {
  const absl::string_view whole = text;
  int shift = 0;
  if (absl::ConsumeSuffix(&text, "K") || absl::ConsumeSuffix(&text, "k")) {
    shift = 10;
  } else if (absl::ConsumeSuffix(&text, "M") || absl::ConsumeSuffix(&text, "m")) {
    shift = 20;
  } else if (absl::ConsumeSuffix(&text, "G") || absl::ConsumeSuffix(&text, "g")) {
    shift = 30;
  }
  int64_t number = 0;
  // Digits alone: no sign, no blanks.
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &number) || number < 1 ||
      number > (std::numeric_limits<int64_t>::max() >> shift)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", whole, "' is no size such as 8, 64K, 1M or 2G"));
  }
  return number << shift;
}

absl::StatusOr<std::vector<int64_t>> SizeRange(int64_t min, int64_t max, int factor) {
  if (min < 1 || max < min || factor < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("no sizes from ", min, " to ", max, " bytes by factors of ", factor));
  }
  std::vector<int64_t> sizes;
  for (int64_t size = min; size <= max; size *= factor) {
    sizes.push_back(size);
    if (size > std::numeric_limits<int64_t>::max() / factor) break;
  }
  return sizes;
}

}  // namespace cohort::perf
