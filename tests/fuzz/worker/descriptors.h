// Descriptors of all kinds that a peer may send.
#ifndef COHORT_TESTS_FUZZ_WORKER_DESCRIPTORS_H_
#define COHORT_TESTS_FUZZ_WORKER_DESCRIPTORS_H_

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "tests/fuzz/worker/input.h"

namespace cohort::worker::fuzz {

enum class FdKind : uint8_t {
  kSpace,      // of two ranks, as it should be
  kHeap,       // of kHeapBytes, as it should be
  kLoose,      // a memory file whose size anybody may change
  kShrinks,    // one that may only shrink
  kTruncated,  // a sealed one of a single byte
  kReadOnly,   // a sealed one that cannot be written to
  kWriteSealed,
  kStream,  // a socket, connected
  kPacket,  // of another type
  kEvent,
  kDevice,
  kFolder,
};
inline constexpr int kFdKinds = 12;
inline constexpr uint64_t kHeapBytes = 4096;

UniqueFd MakeFd(FdKind kind);

// Reads a byte for the number, at most seven, and then one byte for each.
std::vector<UniqueFd> ReadFds(Input& input);

std::vector<int> NumbersOf(const std::vector<UniqueFd>& fds);

// The number of descriptors that this process has open.
int OpenFds();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_DESCRIPTORS_H_
