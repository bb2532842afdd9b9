#include "base/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/shm/memory_file.h"

namespace cohort::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The same offset in two segments of this size or more would often have addresses that differ only
// in a few high bits. Some processors then read both in turn only half as fast. (AMD's processors
// choose a way of the first cache by a digest of 16 bits of the address.) Each segment therefore
// begins at another distance from a multiple of 256 MiB, in steps that allow huge pages.
constexpr size_t kLarge = size_t{1} << 30;
constexpr size_t kWindow = size_t{256} << 20;
constexpr size_t kStep = size_t{2} << 20;

// Where to map; null where anything is as good.
char* PlaceFor(size_t bytes) {
  static std::atomic<size_t> placed{0};
  if (bytes < kLarge) return nullptr;
  const size_t room = bytes + 2 * kWindow;
  void* const reserved =
      mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  munmap(reserved, room);
  const auto begin = (reinterpret_cast<uintptr_t>(reserved) + kWindow - 1) / kWindow * kWindow;
  constexpr size_t kSteps = kWindow / kStep;
  // Odd, so that all steps come before one comes again; and far from the one before.
  return reinterpret_cast<char*>(begin + placed.fetch_add(37) % kSteps * kStep);
}

absl::Status Failed(absl::string_view what, size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("shared memory of ", bytes, " bytes: ", what,
                                                   ": ", absl::ErrnoToStatus(errno, "").message()));
}

}  // namespace

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Segment> Segment::MapWhole(int fd, size_t bytes) {
  // Only a wish: if something else has come there meanwhile, it lies where there is room.
  const int how = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const data = mmap(PlaceFor(bytes), bytes, PROT_READ | PROT_WRITE, how, fd, 0);
  if (data == MAP_FAILED) {
    absl::Status failed = Failed("mmap", bytes);
    if (fd >= 0) close(fd);
    return failed;
  }
  return Segment(fd, static_cast<char*>(data), bytes);
}

// If a sandbox refuses memfd_create, the memory is shared with children of this process alone, and
// fd() is -1. A file in /dev/shm would do for other processes, but it cannot be sealed, so a peer
// could shrink it, and its file system may be smaller than the segment: both end in SIGBUS.
absl::StatusOr<Segment> Segment::Create(const std::string& label, size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("shared memory of no bytes");
  const int fd = OpenMemoryFile(label);
  if (fd < 0 && IsMemoryFileForbidden(errno)) return MapWhole(-1, bytes);
  if (fd < 0) return Failed("memfd_create", bytes);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    absl::Status failed = Failed("setting its size", bytes);
    close(fd);
    return failed;
  }
  return MapWhole(fd, bytes);
}

absl::StatusOr<Segment> Segment::Map(int fd, size_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info = {};
  absl::string_view wrong;
  if (seals < 0) {
    wrong = "it is no memory file";
  } else if ((seals & kSeals) != kSeals) {
    wrong = "its size is not sealed";
  } else if (bytes == 0 || fstat(fd, &info) != 0 || info.st_size != static_cast<off_t>(bytes)) {
    wrong = "it has another size";
  }
  if (wrong.empty()) return MapWhole(fd, bytes);
  close(fd);
  return absl::InvalidArgumentError(
      absl::StrCat("shared memory of ", bytes, " bytes that came from elsewhere: ", wrong));
}

}  // namespace cohort::shm
