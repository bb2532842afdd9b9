// A rank of the limit: the cost of an operation when every rank may read and write all buffers, and
// does nothing else.
//
// The limit of an operation and a size is the time of the bare accesses, by all ranks at once, plus
// that of one flag barrier. The accesses of different ranks have no order. Each rank runs its own N
// times, and then the barrier N times, so that it never waits between accesses. An implementation
// must load and store at least these bytes, and its ranks must wait for each other where every
// output needs every input:
//
//   operation        rank r, of P
//   all_reduce       loads slice r of P inputs, stores it to P outputs     n + n bytes
//   reduce_scatter   loads block r of P inputs, stores it to its output    n + n / P
//   broadcast        loads slice r of rank 0's, stores it to all others'   n (1 / P + (P - 1) / P)
//   all_gather       loads its input, stores it to P outputs               n + n P
//   all_to_all       loads its input, stores each block to one output      n + n
//   sendrecv         loads its input, stores it to the next one's output   n + n
//
// Where an output needs only one input (broadcast, sendrecv), the sender of a small message may go
// on before it arrives. A barrier then costs more than the least, up to some KiB, and such rows can
// be under 1.
//
// Slices are whole cache lines. Stores go through the cache or past it: each is a variant of
// its own, and the table shows the better. Ranks are pinned to cores in turn. As much memory is in
// huge pages as the system allows.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/shm/segment.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/members/harness/member.h"
#include "tests/benchmark/collective/members/harness/member_main.h"
#include "tests/benchmark/collective/members/memory_limit/access_kernel.h"
#include "tests/benchmark/collective/members/memory_limit/flag_barrier.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kLineElements = 64 / sizeof(float);
constexpr int64_t kPageElements = 4096 / sizeof(float);
constexpr absl::Duration kTimeout = absl::Seconds(10);

// Rank 0 creates the memory and leaves its descriptor's place in `path`; the other ranks open it
// there.
absl::StatusOr<shm::Segment> Share(const std::string& path, int rank, size_t bytes) {
  if (rank == 0) {
    COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Create("limit", bytes));
    const std::string unfinished = path + ".new";
    std::ofstream(unfinished) << "/proc/" << getpid() << "/fd/" << segment.fd() << "\n";
    if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot write ", path));
    }
    return segment;
  }
  const absl::Time deadline = absl::Now() + kTimeout;
  std::string descriptor;
  while (!std::getline(std::ifstream(path), descriptor)) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("rank 0 shares no memory");
    absl::SleepFor(absl::Milliseconds(1));
  }
  const int fd = open(descriptor.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot open ", descriptor));
  return shm::Segment::Map(fd, bytes);
}

int64_t WholePages(int64_t elements) {
  return (elements + kPageElements - 1) / kPageElements * kPageElements;
}

// The places of all inputs and outputs in one segment, each on pages of its own.
struct Layout {
  Layout(const Work& work, int members) {
    for (int rank = 0; rank < members; ++rank) {
      const Extents extents = ExtentsOf(work, rank, members);
      inputs.push_back(elements);
      elements += WholePages(extents.input);
      outputs.push_back(elements);
      elements += WholePages(extents.output);
    }
  }

  std::vector<int64_t> inputs;
  std::vector<int64_t> outputs;
  int64_t elements = 0;
};

struct Places {
  Places(const Layout& layout, char* memory) {
    float* const start = reinterpret_cast<float*>(memory);
    for (int64_t input : layout.inputs) inputs.push_back(start + input);
    for (int64_t output : layout.outputs) outputs.push_back(start + output);
  }

  std::vector<float*> inputs;
  std::vector<float*> outputs;
};

// The loads and stores of one rank.
std::vector<Access> AccessesOf(const Work& work, int rank, int members, const Places& places) {
  const Extents extents = ExtentsOf(work, rank, members);
  const int64_t elements = std::max(extents.input, extents.output);
  const int64_t block = BlockElements(work, members);
  const int64_t lines = (elements + kLineElements - 1) / kLineElements;
  const int64_t begin = std::min(elements, lines * rank / members * kLineElements);
  const int64_t end = std::min(elements, lines * (rank + 1) / members * kLineElements);

  Access access;
  switch (work.collective) {
    case Collective::kAllReduce:
      for (float* input : places.inputs) access.sources.push_back(input + begin);
      for (float* output : places.outputs) access.destinations.push_back(output + begin);
      access.elements = end - begin;
      return {access};
    case Collective::kReduceScatter:
      for (float* input : places.inputs) access.sources.push_back(input + rank * block);
      access.destinations = {places.outputs[rank]};
      access.elements = block;
      return {access};
    case Collective::kBroadcast:
      access.sources = {places.inputs[0] + begin};
      for (int i = 1; i < members; ++i) access.destinations.push_back(places.outputs[i] + begin);
      access.elements = end - begin;
      return {access};
    case Collective::kAllGather:
      access.sources = {places.inputs[rank]};
      for (float* output : places.outputs) {
        access.destinations.push_back(output + rank * extents.input);
      }
      access.elements = extents.input;
      return {access};
    case Collective::kExchange:
      return {{{places.inputs[rank]}, {places.outputs[(rank + 1) % members]}, elements}};
    case Collective::kAllToAll: {
      std::vector<Access> accesses;
      for (int i = 0; i < members; ++i) {
        const int peer = (rank + i) % members;
        accesses.push_back(
            {{places.inputs[rank] + peer * block}, {places.outputs[peer] + rank * block}, block});
      }
      return accesses;
    }
    default:
      return {};
  }
}

class LimitWork final : public Prepared {
 public:
  LimitWork(shm::Segment segment, const Places& places, std::vector<Access> accesses, int rank,
            Stores stores, FlagBarrier& barrier)
      : segment_(std::move(segment)),
        input_(places.inputs[rank]),
        output_(places.outputs[rank]),
        accesses_(std::move(accesses)),
        stores_(stores),
        barrier_(barrier) {}

  float* input() override { return input_; }
  float* output() override { return output_; }

  absl::Status Run(int64_t iterations) override {
    for (int64_t i = 0; i < iterations; ++i) {
      for (const Access& access : accesses_) Perform(access, stores_);
    }
    for (int64_t i = 0; i < iterations; ++i) barrier_.Wait();
    return absl::OkStatus();
  }

 private:
  const shm::Segment segment_;
  float* const input_;
  float* const output_;
  const std::vector<Access> accesses_;
  const Stores stores_;
  FlagBarrier& barrier_;
};

class LimitMember final : public Member {
 public:
  LimitMember(const MemberOptions& options, shm::Segment flags, bool yields)
      : options_(options),
        flags_(std::move(flags)),
        barrier_(flags_.data(), options.rank, options.members, yields) {}

  int rank() const override { return options_.rank; }

  absl::Status Barrier() override {
    barrier_.Wait();
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) override {
    const Stores stores = work.algorithm == "streaming" ? Stores::kStreaming
                          : work.algorithm == "memcpy"  ? Stores::kMemcpy
                                                        : Stores::kCached;
    const Layout layout(work, options_.members);
    const std::string path = absl::StrCat(options_.folder, "/segment-", ++segments_);
    COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                            Share(path, options_.rank, layout.elements * sizeof(float)));
    // Only advice: many systems keep shared memory in small pages.
    madvise(segment.data(), segment.size(), MADV_HUGEPAGE);
    const Places places(layout, segment.data());
    std::vector<Access> accesses = AccessesOf(work, options_.rank, options_.members, places);
    // Each process has page tables of its own.
    for (size_t i = 0; i < segment.size(); i += 4096) {
      [[maybe_unused]] const char touched = *(volatile char*)(segment.data() + i);
    }
    return std::make_unique<LimitWork>(std::move(segment), places, std::move(accesses),
                                       options_.rank, stores, barrier_);
  }

 private:
  const MemberOptions options_;
  const shm::Segment flags_;
  FlagBarrier barrier_;
  int segments_ = 0;
};

// To the allowed cores in turn; their number.
int Pin(int rank) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const int count = CPU_COUNT(&allowed);
  int wanted = rank % count;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    break;
  }
  return count;
}

absl::StatusOr<std::unique_ptr<Member>> MakeMember(const MemberOptions& options) {
  const int cores = Pin(options.rank);
  COHORT_ASSIGN_OR_RETURN(shm::Segment flags,
                          Share(absl::StrCat(options.folder, "/flags"), options.rank,
                                FlagBarrier::BytesFor(options.members)));
  return std::make_unique<LimitMember>(options, std::move(flags), options.members > cores);
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  return cohort::benchmark::MemberMain(argc, argv, cohort::benchmark::MakeMember);
}
