#include "client/parallel/queue/ring/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

// The first line as a number; nothing if there is no limit ("max").
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  uint64_t number = 0;
  if (!std::getline(file, line) || !absl::SimpleAtoi(line, &number)) return std::nullopt;
  return number;
}

// The number after `name` in a file of names and numbers.
std::optional<uint64_t> ReadField(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  while (file >> word) {
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

absl::Status Check(uint64_t bytes, uint64_t there, absl::string_view who) {
  if (bytes <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(bytes, " bytes of memory are needed, ", there, " are left by ", who));
}

struct Limit {
  std::string folder;  // the folder of all control groups
  std::string most;
  std::string used;
  std::string reclaimable;  // part of `used`, in memory.stat: files in no use
};

// Checks the group and its parents.
absl::Status CheckGroups(uint64_t bytes, const Limit& limit, std::string group) {
  while (true) {
    const std::string folder = absl::StrCat(limit.folder, group);
    const std::optional<uint64_t> most = ReadNumber(absl::StrCat(folder, "/", limit.most));
    const std::optional<uint64_t> used = ReadNumber(absl::StrCat(folder, "/", limit.used));
    if (most.has_value() && used.has_value()) {
      const uint64_t files =
          ReadField(absl::StrCat(folder, "/memory.stat"), limit.reclaimable).value_or(0);
      const uint64_t taken = *used - std::min(*used, files);
      COHORT_RETURN_IF_ERROR(Check(bytes, *most - std::min(*most, taken),
                                   absl::StrCat("the control group ", group.empty() ? "/" : group,
                                                ", which may use ", *most)));
    }
    if (group.empty()) return absl::OkStatus();
    group.resize(group.rfind('/'));
  }
}

}  // namespace

absl::Status CheckAvailableMemory(uint64_t bytes, const std::string& root) {
  const std::optional<uint64_t> kib =
      ReadField(absl::StrCat(root, "proc/meminfo"), "MemAvailable:");
  if (kib.has_value()) COHORT_RETURN_IF_ERROR(Check(bytes, *kib * 1024, "the machine"));

  std::ifstream groups(absl::StrCat(root, "proc/self/cgroup"));
  std::string line;
  while (std::getline(groups, line)) {
    // "0::/group" is version 2's; "4:memory:/group" is version 1's.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || !absl::StartsWith(fields[2], "/")) continue;
    const std::string group = fields[2] == "/" ? "" : fields[2];
    if (fields[1].empty()) {
      const Limit limit = {absl::StrCat(root, "sys/fs/cgroup"), "memory.max", "memory.current",
                           "inactive_file"};
      COHORT_RETURN_IF_ERROR(CheckGroups(bytes, limit, group));
    }
    const std::vector<std::string> kinds = absl::StrSplit(fields[1], ',');
    for (const std::string& kind : kinds) {
      if (kind != "memory") continue;
      const Limit limit = {absl::StrCat(root, "sys/fs/cgroup/memory"), "memory.limit_in_bytes",
                           "memory.usage_in_bytes", "total_inactive_file"};
      COHORT_RETURN_IF_ERROR(CheckGroups(bytes, limit, group));
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort::parallel
