#include "tests/benchmark/collective/processes/work.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kElementBytes = sizeof(float);

}  // namespace

std::vector<Collective> AllCollectives() {
  return {Collective::kAllReduce, Collective::kReduceScatter, Collective::kBroadcast,
          Collective::kAllGather, Collective::kAllToAll,      Collective::kExchange};
}

std::string CollectiveName(Collective collective) {
  return collective == Collective::kExchange ? "sendrecv" : std::string(NameOf(collective));
}

absl::StatusOr<Collective> ParseCollective(absl::string_view name) {
  for (Collective collective : AllCollectives()) {
    if (CollectiveName(collective) == name) return collective;
  }
  return absl::InvalidArgumentError(absl::StrCat("no operation \"", name, "\""));
}

std::string MemoryName(Memory memory) { return memory == Memory::kPlain ? "plain" : "registered"; }

std::string FormatWork(const Work& work) {
  return absl::StrCat(CollectiveName(work.collective), " ", work.bytes, " ",
                      MemoryName(work.memory), " ", work.algorithm.empty() ? "-" : work.algorithm);
}

absl::StatusOr<Work> ParseWork(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Work work;
  if (words.size() != 4 || !absl::SimpleAtoi(words[1], &work.bytes) || work.bytes <= 0 ||
      (words[2] != "plain" && words[2] != "registered")) {
    return absl::InvalidArgumentError(absl::StrCat("not a piece of work: \"", text, "\""));
  }
  absl::StatusOr<Collective> collective = ParseCollective(words[0]);
  if (!collective.ok()) return collective.status();
  work.collective = *collective;
  work.memory = words[2] == "plain" ? Memory::kPlain : Memory::kRegistered;
  if (words[3] != "-") work.algorithm = words[3];
  return work;
}

int64_t BlockElements(const Work& work, int members) {
  const int64_t elements = work.bytes / kElementBytes;
  return std::max<int64_t>(1, (elements + members - 1) / members);
}

Extents ExtentsOf(const Work& work, int rank, int members) {
  const int64_t elements = std::max<int64_t>(1, work.bytes / kElementBytes);
  const int64_t block = BlockElements(work, members);
  switch (work.collective) {
    case Collective::kAllReduce:
    case Collective::kExchange:
      return {elements, elements};
    case Collective::kAllGather:
      return {elements, elements * members};
    case Collective::kReduceScatter:
      return {block * members, block};
    case Collective::kAllToAll:
      return {block * members, block * members};
    case Collective::kBroadcast:
      return rank == 0 ? Extents{elements, 0} : Extents{0, elements};
    default:
      return {};  // not in AllCollectives
  }
}

double BusBytes(const Work& work, int members) {
  const double bytes = static_cast<double>(work.bytes);
  const double others = members - 1;
  switch (work.collective) {
    case Collective::kAllReduce:
      return bytes * 2 * others / members;
    case Collective::kAllGather:
      return bytes * others;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return bytes * others / members;
    case Collective::kBroadcast:
    case Collective::kExchange:
      return bytes;
    default:
      return 0;  // not in AllCollectives
  }
}

}  // namespace cohort::benchmark
