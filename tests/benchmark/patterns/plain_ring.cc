#include "tests/benchmark/patterns/plain_ring.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace cohort::benchmark {
namespace {

// The header: the length, and nothing that overflows.
struct Frame {
  uint64_t bytes;
};

uint8_t Load(const uint8_t* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
void Store(uint8_t* flag, uint8_t value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }

}  // namespace

absl::StatusOr<PlainRing> PlainRing::Open(const std::string& path, int readers, int reader) {
  const auto bytes = static_cast<size_t>(kBlocks * (kBlockBytes + 1 + readers));
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ErrnoToStatus(errno, path);
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("mmap of ", path));
  return PlainRing(static_cast<char*>(memory), bytes, readers, reader);
}

PlainRing::PlainRing(PlainRing&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      readers_(other.readers_),
      reader_(other.reader_),
      at_(other.at_) {}

PlainRing::~PlainRing() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

uint8_t* PlainRing::Flags(int64_t at) const {
  return reinterpret_cast<uint8_t*>(memory_) + kBlocks * kBlockBytes + at * (1 + readers_);
}

absl::Status PlainRing::Enqueue(absl::string_view value) {
  if (value.size() + sizeof(Frame) > static_cast<size_t>(kBlockBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(value.size(), " bytes fit no block"));
  }
  uint8_t* const flags = Flags(at_);
  const auto is_free = [&] {
    if (Load(flags) == 0) return true;
    return std::all_of(flags + 1, flags + 1 + readers_,
                       [](const uint8_t& flag) { return Load(&flag) != 0; });
  };
  while (!is_free()) sched_yield();
  Store(flags, 0);
  const Frame frame = {value.size()};
  std::memcpy(Block(at_), &frame, sizeof(frame));
  std::memcpy(Block(at_) + sizeof(frame), value.data(), value.size());
  for (int reader = 0; reader < readers_; ++reader) Store(flags + 1 + reader, 0);
  Store(flags, 1);
  at_ = (at_ + 1) % kBlocks;
  return absl::OkStatus();
}

absl::Status PlainRing::Dequeue(std::string* value) {
  uint8_t* const flags = Flags(at_);
  uint8_t* const own = flags + 1 + reader_;
  while (Load(flags) == 0 || Load(own) != 0) sched_yield();
  Frame frame = {};
  std::memcpy(&frame, Block(at_), sizeof(frame));
  value->assign(Block(at_) + sizeof(frame), frame.bytes);
  Store(own, 1);
  at_ = (at_ + 1) % kBlocks;
  return absl::OkStatus();
}

}  // namespace cohort::benchmark
