#include "tests/benchmark/collective/members/harness/member_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::benchmark {

absl::StatusOr<std::unique_ptr<Block>> Block::Allocate(int64_t elements) {
  const size_t bytes = std::max<size_t>(elements, 1) * sizeof(float);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes: ", std::strerror(errno)));
  }
  std::memset(data, 1, bytes);
  return std::unique_ptr<Block>(new Block(static_cast<float*>(data), bytes));
}

Block::~Block() { munmap(data_, bytes_); }

absl::StatusOr<Buffers> Buffers::Allocate(const Work& work, int rank, int members) {
  Buffers buffers;
  buffers.extents = ExtentsOf(work, rank, members);
  COHORT_ASSIGN_OR_RETURN(buffers.input, Block::Allocate(buffers.extents.input));
  COHORT_ASSIGN_OR_RETURN(buffers.output, Block::Allocate(buffers.extents.output));
  return buffers;
}

}  // namespace cohort::benchmark
