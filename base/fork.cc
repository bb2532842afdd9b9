#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cohort {
namespace {

// The kernel's number of each socket, by descriptor; 0: none. A child looks at it, in which only
// calls are safe that are safe in a signal handler: so it has no lock and is never freed.
constexpr size_t kChunk = 1024;
using Chunk = std::array<std::atomic<uint64_t>, kChunk>;
std::array<std::atomic<Chunk*>, 1024> chunks;

// Returns the number of an open socket; 0 for other files.
uint64_t SocketNumber(int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) ? file.st_ino : 0;
}

void CloseAll() {
  int null = -1;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk* const chunk = chunks[i].load(std::memory_order_acquire);
    if (chunk == nullptr) continue;
    for (size_t j = 0; j < kChunk; ++j) {
      const uint64_t socket = (*chunk)[j].load(std::memory_order_relaxed);
      const int fd = static_cast<int>(i * kChunk + j);
      // Another file may have the number by now.
      if (socket == 0 || SocketNumber(fd) != socket) continue;
      if (null < 0) null = open("/dev/null", O_RDWR | O_CLOEXEC);
      if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0) close(fd);
    }
  }
  if (null >= 0) close(null);
}

}  // namespace

void CloseInChildren(int fd) {
  static const int once = pthread_atfork(nullptr, nullptr, CloseAll);
  static_cast<void>(once);
  const auto at = static_cast<size_t>(fd);
  if (fd < 0 || at / kChunk >= chunks.size()) return;
  const uint64_t number = SocketNumber(fd);
  if (number == 0) return;
  std::atomic<Chunk*>& slot = chunks[at / kChunk];
  Chunk* chunk = slot.load(std::memory_order_acquire);
  if (chunk == nullptr) {
    auto* const made = new Chunk();
    if (slot.compare_exchange_strong(chunk, made, std::memory_order_acq_rel)) {
      chunk = made;
    } else {
      delete made;
    }
  }
  (*chunk)[at % kChunk].store(number, std::memory_order_relaxed);
}

}  // namespace cohort
