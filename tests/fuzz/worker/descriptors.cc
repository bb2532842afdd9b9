#include "tests/fuzz/worker/descriptors.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/shm/segment.h"
#include "worker/communicator/host/shared/host_shared_memory.h"

namespace cohort::worker::fuzz {
namespace {

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

UniqueFd MemoryFile(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return UniqueFd();
  fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

UniqueFd Socket(int type) {
  int ends[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return UniqueFd();
  close(ends[1]);
  return UniqueFd(ends[0]);
}

}  // namespace

UniqueFd MakeFd(FdKind kind) {
  switch (kind) {
    case FdKind::kSpace:
      return UniqueFd(dup(HostSharedMemory::Create(2)->fd()));
    case FdKind::kHeap:
      return MemoryFile(kHeapBytes, kAllSeals);
    case FdKind::kLoose:
      return MemoryFile(kHeapBytes, 0);
    case FdKind::kShrinks:
      return MemoryFile(kHeapBytes, F_SEAL_GROW | F_SEAL_SEAL);
    case FdKind::kTruncated:
      return MemoryFile(1, kAllSeals);
    case FdKind::kReadOnly: {
      const UniqueFd file = MemoryFile(kHeapBytes, kAllSeals);
      return UniqueFd(open(absl::StrCat("/proc/self/fd/", file.get()).c_str(), O_RDONLY));
    }
    case FdKind::kWriteSealed:
      return MemoryFile(kHeapBytes, kAllSeals | F_SEAL_WRITE);
    case FdKind::kStream:
      return Socket(SOCK_STREAM);
    case FdKind::kPacket:
      return Socket(SOCK_SEQPACKET);
    case FdKind::kEvent:
      return UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    case FdKind::kDevice:
      return UniqueFd(open("/dev/zero", O_RDWR | O_CLOEXEC));
    case FdKind::kFolder:
      return UniqueFd(open("/", O_RDONLY | O_CLOEXEC));
  }
  return UniqueFd();
}

std::vector<UniqueFd> ReadFds(Input& input) {
  std::vector<UniqueFd> fds;
  for (int left = input.Byte() % 8; left > 0; --left) {
    UniqueFd fd = MakeFd(static_cast<FdKind>(input.Byte() % kFdKinds));
    if (fd.is_open()) fds.push_back(std::move(fd));
  }
  return fds;
}

std::vector<int> NumbersOf(const std::vector<UniqueFd>& fds) {
  std::vector<int> numbers;
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  return numbers;
}

int OpenFds() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<int>(std::distance(begin(folder), end(folder)));
}

}  // namespace cohort::worker::fuzz
