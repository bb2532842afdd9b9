// Descriptors of all kinds that a peer may send.
#ifndef COHORT_TESTS_FUZZ_WORKER_DESCRIPTORS_H_
#define COHORT_TESTS_FUZZ_WORKER_DESCRIPTORS_H_

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "tests/fuzz/worker/input.h"

namespace cohort::worker::fuzz {

enum class FdKind : uint8_t {
  kSpace,      // a proper one, of two ranks
  kHeap,       // a proper one, of kHeapBytes
  kLoose,      // a memory file whose size any process may change
  kShrinks,    // a memory file that may only shrink
  kTruncated,  // a sealed memory file of one byte
  kReadOnly,   // a sealed memory file that cannot be written to
  kWriteSealed,
  kStream,  // a connected socket
  kPacket,  // a socket of another type
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
