#include "base/shm/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/base/internal/raw_logging.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::shm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kLarge = size_t{64} << 10;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

size_t Heap::DefaultCapacity() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L << 18));
  return RoundUp(pages * kPage, size_t{1} << 30);
}

absl::StatusOr<std::unique_ptr<Heap>> Heap::Create(const std::string& label, size_t capacity,
                                                   size_t most_kept, Charge charge) {
  COHORT_ASSIGN_OR_RETURN(Segment segment, Segment::Create(label, RoundUp(capacity, kPage)));
  return absl::WrapUnique(new Heap(std::move(segment), most_kept, std::move(charge)));
}

Heap::Heap(Segment segment, size_t most_kept, Charge charge)
    : segment_(std::move(segment)),
      most_kept_(most_kept),
      charge_(std::move(charge)),
      creator_(getpid()),
      blocks_(segment_.size()) {
  // A hint for machines that allow it.
  madvise(segment_.data(), segment_.size(), MADV_HUGEPAGE);
}

absl::StatusOr<void*> Heap::Allocate(size_t bytes) {
  if (bytes > segment_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of shared memory; the whole has ", segment_.size()));
  }
  if (getpid() != creator_) {
    return absl::FailedPreconditionError(absl::StrCat(
        bytes, " bytes of shared memory: this process was forked from process ", creator_,
        ", which alone allocates from its heap"));
  }
  const size_t alignment = bytes >= kLarge ? kPage : kLine;
  const size_t needed = RoundUp(std::max<size_t>(bytes, 1), alignment);
  MutexLock lock(&mutex_);
  if (const std::optional<size_t> at = blocks_.Take(needed, alignment)) {
    const size_t reused = std::min(kept_, needed);
    if (charge_ != nullptr) {
      const absl::Status charged = charge_(static_cast<int64_t>(needed - reused));
      if (!charged.ok()) {
        blocks_.Give(*at);
        return charged;
      }
    }
    kept_ -= reused;
    return segment_.data() + *at;
  }
  return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of shared memory; of ",
                                                   segment_.size(), " are ", blocks_.in_use(),
                                                   " in use"));
}

void Heap::Free(void* memory) {
  if (getpid() != creator_) return;  // before the lock, which a thread may have held at the fork
  const auto at = static_cast<size_t>(static_cast<char*>(memory) - segment_.data());
  MutexLock lock(&mutex_);
  const std::optional<OffsetAllocator::Block> given = blocks_.Give(at);
  ABSL_RAW_CHECK(given.has_value(), "memory freed that is not allocated, or twice");
  kept_ += given->bytes;
  if (kept_ > most_kept_) {
    const size_t first = RoundUp(at, kPage);
    const size_t last = (at + given->bytes) / kPage * kPage;
    if (first < last &&
        fallocate(segment_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(first), static_cast<off_t>(last - first)) == 0) {
      kept_ -= last - first;
      if (charge_ != nullptr) charge_(-static_cast<int64_t>(last - first)).IgnoreError();
    }
  }
}

size_t Heap::bytes_in_use() const {
  MutexLock lock(&mutex_);
  return blocks_.in_use();
}

}  // namespace cohort::shm
