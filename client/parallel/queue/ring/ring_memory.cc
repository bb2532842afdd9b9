#include "client/parallel/queue/ring/ring_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/shm/memory_file.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr size_t kPageFileBytes = 4096;

uint64_t PageBytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

absl::Status Failed(absl::string_view what, uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("a ring of ", bytes, " bytes: ", what, ": ",
                                                   absl::ErrnoToStatus(errno, "").message()));
}

}  // namespace

RingMemory::RingMemory(UniqueFd fd, uint64_t capacity)
    : fd_(std::move(fd)), page_(PageBytes()), capacity_(capacity) {}

RingMemory::~RingMemory() {
  if (base_ != nullptr) munmap(base_, page_ + 2 * capacity_);
}

absl::Status RingMemory::MapTwice(bool writes) {
  const uint64_t whole = page_ + 2 * capacity_;
  void* const place =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return Failed("finding addresses", capacity_);
  base_ = static_cast<char*>(place);
  const int access = writes ? PROT_READ | PROT_WRITE : PROT_READ;
  constexpr int kHow = MAP_SHARED | MAP_FIXED;
  if (!fd_.is_open()) return MapTwiceWithoutFile();
  if (mmap(base_, page_ + capacity_, access, kHow, fd_.get(), 0) == MAP_FAILED ||
      mmap(base_ + page_ + capacity_, capacity_, access, kHow, fd_.get(),
           static_cast<off_t>(page_)) == MAP_FAILED) {
    return Failed("mmap", capacity_);
  }
  return absl::OkStatus();
}

absl::Status RingMemory::MapTwiceWithoutFile() {
  constexpr int kHow = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (mmap(base_, page_ + capacity_, PROT_READ | PROT_WRITE, kHow, -1, 0) == MAP_FAILED) {
    return Failed("mmap", capacity_);
  }
  // An old size of 0 maps the same pages of a shared mapping once more.
  if (mremap(base_ + page_, 0, capacity_, MREMAP_MAYMOVE | MREMAP_FIXED,
             base_ + page_ + capacity_) == MAP_FAILED) {
    return Failed("mremap", capacity_);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RingMemory>> RingMemory::Create(int64_t bytes) {
  const uint64_t page = PageBytes();
  const uint64_t capacity = (static_cast<uint64_t>(bytes) + page - 1) / page * page;
  UniqueFd fd(shm::OpenMemoryFile("cohort-queue"));
  if (!fd.is_open()) {
    if (!shm::IsMemoryFileForbidden(errno)) return Failed("memfd_create", capacity);
    auto ring = absl::WrapUnique(new RingMemory(UniqueFd(), capacity));
    COHORT_RETURN_IF_ERROR(ring->MapTwice(true));
    return std::shared_ptr<RingMemory>(std::move(ring));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(page + capacity)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return Failed("setting its size", capacity);
  }
  auto ring = absl::WrapUnique(new RingMemory(std::move(fd), capacity));
  COHORT_RETURN_IF_ERROR(ring->MapTwice(true));
#ifdef F_SEAL_FUTURE_WRITE
  // After the only mapping that writes. Kernels before 5.1 do without it.
  fcntl(ring->fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
#endif
  fcntl(ring->fd(), F_ADD_SEALS, F_SEAL_SEAL);
  return std::shared_ptr<RingMemory>(std::move(ring));
}

absl::StatusOr<std::shared_ptr<RingMemory>> RingMemory::Map(UniqueFd fd, int64_t capacity) {
  const uint64_t page = PageBytes();
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  struct stat info = {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || capacity <= 0 ||
      static_cast<uint64_t>(capacity) % page != 0 || fstat(fd.get(), &info) != 0 ||
      static_cast<uint64_t>(info.st_size) != page + static_cast<uint64_t>(capacity)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the descriptor of the writer is not a ring of ", capacity, " bytes"));
  }
  auto ring = absl::WrapUnique(new RingMemory(std::move(fd), static_cast<uint64_t>(capacity)));
  COHORT_RETURN_IF_ERROR(ring->MapTwice(false));
  return std::shared_ptr<RingMemory>(std::move(ring));
}

absl::StatusOr<std::shared_ptr<PageMemory>> PageMemory::Create() {
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                          shm::Segment::Create("cohort-queue-reader", kPageFileBytes));
  auto memory = std::shared_ptr<PageMemory>(new PageMemory(std::move(segment)));
  memory->page().awaited_head.store(kNobody, std::memory_order_relaxed);
  return memory;
}

absl::StatusOr<std::shared_ptr<PageMemory>> PageMemory::Map(UniqueFd fd) {
  // Takes the descriptor in any case.
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(fd.release(), kPageFileBytes));
  return std::shared_ptr<PageMemory>(new PageMemory(std::move(segment)));
}

}  // namespace cohort::parallel
