// Gloo with each of its algorithms, over TCP on the loopback interface.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/implementations.h"

namespace cohort::benchmark {
namespace {

// In synchronous mode both sides of a pair may block in a write at once, each waiting for the other
// to read. Bytes that do not fit into the sockets' buffers then never leave. The limit is half of
// the system's receive buffer, because the system counts more than the payload.
int64_t MaxSynchronousBytes() {
  std::ifstream limits("/proc/sys/net/ipv4/tcp_rmem");
  int64_t least = 0;
  int64_t usual = 0;
  int64_t most = 0;
  return limits >> least >> usual >> most ? most / 2 : 64 << 10;
}

struct Algorithm {
  std::string name;
  Collective collective;
};

// On unbound buffers, which know no synchronous mode.
const std::vector<Algorithm> kFunctions = {
    {"ring", Collective::kAllReduce}, {"bcube", Collective::kAllReduce},
    {"tree", Collective::kBroadcast}, {"ring", Collective::kAllGather},
    {"pairs", Collective::kAllToAll}, {"unbound", Collective::kExchange},
};

// Classes on bound buffers.
const std::vector<Algorithm> kClasses = {
    {"class-ring-chunked", Collective::kAllReduce},
    {"class-halving-doubling", Collective::kAllReduce},
    {"class-bcube", Collective::kAllReduce},
    {"class-halving-doubling", Collective::kReduceScatter},
    {"class-one-to-all", Collective::kBroadcast},
    {"class-ring", Collective::kAllGather},
    {"class-pairs", Collective::kAllToAll},
    {"class-bound", Collective::kExchange},
};

}  // namespace

void AddGloo(const ImplementationOptions& options, Implementations& implementations) {
  Variant variant;
  variant.rows = {"gloo-best"};
  variant.processes = AddMemberProcesses(
      options, "gloo",
      [options](const Command& arguments) {
        return OneForEachRank(absl::StrCat(options.programs, "/members/gloo/gloo_member"),
                              options.members, arguments);
      },
      implementations);
  const auto add = [&](const Algorithm& algorithm, const std::string& mode) {
    variant.algorithm = absl::StrCat(mode, "/", algorithm.name);
    variant.label = variant.algorithm;
    variant.collectives = {algorithm.collective};
    implementations.variants.push_back(variant);
  };
  for (const Algorithm& algorithm : kFunctions) add(algorithm, "async");
  for (const Algorithm& algorithm : kClasses) add(algorithm, "async");
  variant.max_bytes = MaxSynchronousBytes();
  for (const Algorithm& algorithm : kClasses) add(algorithm, "sync");
  // With more ranks than cores, a rank that polls keeps its core from the rank it waits for: a
  // message takes milliseconds.
  if (options.members > options.cores) return;
  for (const Algorithm& algorithm : kClasses) add(algorithm, "busy");
}

}  // namespace cohort::benchmark
