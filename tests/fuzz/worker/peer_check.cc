#include "tests/fuzz/worker/peer_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/segment.h"
#include "tests/fuzz/worker/input.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/host_communicator.h"

namespace cohort::worker::fuzz {
namespace {

// An input, in order:
//   ranks (1 byte)    bit 0: this rank; bit 1: the other's lines are proper, except for the writes;
//                     bit 2: input and output lie in the heap; bit 3: the root; bit 4: in place
//   collective, type, reduction, count (1 byte each)
//   stage (1 byte)    of the other's second line, if its lines are proper
//   offsets (16 bytes) of the other's tensors, as its lines claim
//   writes            area (1 byte), offset (2 bytes), length (1 byte), bytes
constexpr int kOwnRankBit = 1;
constexpr int kProperBit = 2;
constexpr int kHeapBit = 4;
constexpr int kRootBit = 8;
constexpr int kInPlaceBit = 16;
constexpr int kCollectiveCount = 10;
// The collectives of flat memory, by the number in an input. The last one stands for messages.
constexpr Collective kCollectives[kCollectiveCount] = {
    Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
    Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
    Collective::kGather,    Collective::kScatter,       Collective::kBarrier,
    Collective::kExchange};

constexpr std::array<int64_t, 16> kCounts = {
    0, 1, 3, 4, 8, 33, 65, 1000, 2048, 4097, 8192, 9000, 70000, 200001, 700000, 3000000};
// So large that it is mapped apart from other segments. Little of it is touched.
constexpr size_t kHeapBytes = size_t{1} << 30;
constexpr int64_t kMostBytes = int64_t{12} << 20;  // of a part of a tensor
constexpr size_t kGuard = size_t{1} << 20;
constexpr size_t kPage = 4096;
constexpr absl::Duration kAtOnce = absl::Seconds(5);

// Returns a heap with inaccessible pages before and behind it.
std::shared_ptr<const shm::Segment> GuardedHeap() {
  std::vector<shm::Segment> misplaced;
  while (true) {
    absl::StatusOr<shm::Segment> segment = shm::Segment::Create("fuzz-heap", kHeapBytes);
    if (!segment.ok()) return nullptr;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void* const before = segment->data() - kGuard;
    void* const behind = segment->data() + kHeapBytes;
    if (mmap(before, kGuard, PROT_NONE, kFlags, -1, 0) == before) {
      if (mmap(behind, kGuard, PROT_NONE, kFlags, -1, 0) == behind) {
        return std::make_shared<shm::Segment>(*std::move(segment));
      }
      munmap(before, kGuard);
    }
    // Other mappings are next to it.
    misplaced.push_back(*std::move(segment));
    if (misplaced.size() > 64) return nullptr;
  }
}

bool CanTravel(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned first = byte(i);
    const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first >= 0x80 && (first < 0xC2 || first > 0xF4)) return false;
    for (size_t next = 1; next < length; ++next) {
      if ((byte(i + next) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

class Call {
 public:
  explicit Call(absl::string_view bytes) : input_(bytes) {
    const uint8_t who = input_.Byte();
    own_ = who & kOwnRankBit;
    proper_ = (who & kProperBit) != 0;
    in_heap_ = (who & kHeapBit) != 0;
    in_place_ = (who & kInPlaceBit) != 0;
    collective_ = input_.Byte() % kCollectiveCount;
    operation_.collective = kCollectives[collective_];
    operation_.type = kDataTypes[input_.Byte() % kDataTypes.size()];
    operation_.reduction.op = kReduceOps[input_.Byte() % kReduceOps.size()];
    operation_.count = kCounts[input_.Byte() % kCounts.size()];
    while (operation_.count * SizeOf(operation_.type) > kMostBytes) operation_.count /= 2;
    operation_.root = HasRoot(operation_.collective) && (who & kRootBit) != 0 ? 1 : 0;
    stage_ = input_.Byte() % 8;
    offsets_ = input_.Bytes(16);
    writes_ = input_.Rest();
  }

  absl::Status Run(int* done) {
    static const auto* const own_heap = new std::shared_ptr<const shm::Segment>(GuardedHeap());
    static const auto* const other_heap = new std::shared_ptr<const shm::Segment>(GuardedHeap());
    if (*own_heap == nullptr || *other_heap == nullptr) {
      return absl::InternalError("no room for a heap");
    }
    absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(2);
    absl::StatusOr<shm::Segment> others = shm::Segment::Map(dup(space->fd()), SizeOfSpace(*space));
    absl::StatusOr<HostSharedMemory> lines = HostSharedMemory::Attach(dup(space->fd()), 2);
    if (!others.ok() || !lines.ok()) return absl::InternalError("no space");
    RankHeaps heaps(2);
    heaps[static_cast<size_t>(own_)] = *own_heap;
    heaps[static_cast<size_t>(1 - own_)] = *other_heap;
    HostCommunicator rank(HostMemory{*std::move(space), std::move(heaps)}, own_);
    PlaceTensors(**own_heap);
    for (uint64_t sequence = 1; sequence <= 3; sequence += 2) {
      if (proper_) Prepare(*lines, sequence);
      Write(*lines, *others);
      const Instant begin = Clock::Steady().Now();
      const absl::Status status = Do(rank, begin);
      if (Clock::Steady().Now() - begin > kAtOnce) return absl::InternalError("it took long");
      if (status.ok()) ++*done;
      const bool known = status.ok() || absl::IsInvalidArgument(status) ||
                         absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
      if (!known || !CanTravel(status.message()) || (!status.ok() && status.message().empty())) {
        return absl::InternalError(absl::StrCat("an unexpected status: ", status.ToString()));
      }
    }
    return absl::OkStatus();
  }

 private:
  static size_t SizeOfSpace(const HostSharedMemory& space) {
    return static_cast<size_t>(lseek(space.fd(), 0, SEEK_END));
  }

  // Places the tensors at the end of the heap, or in as many bytes of this process.
  void PlaceTensors(const shm::Segment& heap) {
    const int64_t part = operation_.count * SizeOf(operation_.type);
    const auto bytes = static_cast<size_t>(part * 2);
    if (in_heap_) {
      const size_t rounded = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
      output_ = heap.data() + kHeapBytes / 2 - rounded;
      input_data_ = heap.data() + kHeapBytes - rounded;
    } else {
      // Uninitialised, so that large ones cost nothing.
      memory_[0].reset(new char[bytes]);
      memory_[1].reset(new char[bytes]);
      output_ = memory_[0].get();
      input_data_ = memory_[1].get();
    }
    if (in_place_) input_data_ = output_;
  }

  // Writes the lines as the other rank would, for a call with one barrier or two.
  void Prepare(const HostSharedMemory& space, uint64_t sequence) const {
    for (uint64_t next = sequence; next < sequence + 2; ++next) {
      ArrivalLine& line = space.line(1 - own_, next);
      line.key = KeyOf(operation_, next == sequence ? 0 : stage_);
      std::memcpy(line.data, offsets_.data(), offsets_.size());
      line.sequence.store(next);
    }
    Channel& channel = space.channel(1 - own_, own_);
    for (uint64_t number = sequence; number < sequence + Channel::kFragments; ++number) {
      FragmentLine& line = channel.line(number);
      line.count = operation_.count;
      line.type = static_cast<uint8_t>(operation_.type);
      line.tag = 0;
      line.offset = 0;
      std::memcpy(&line.offset, offsets_.data(), std::min(offsets_.size(), sizeof(line.offset)));
      // An offset beyond the buffer can only mean the heap.
      const bool in_heap = line.offset >= space.fragment_bytes();
      line.bytes = static_cast<uint32_t>(
          in_heap ? 0
                  : std::min<int64_t>(operation_.count * SizeOf(operation_.type),
                                      Channel::kSmallBytes));
      line.number.store(number);
    }
    space.channel(own_, 1 - own_).taken.number.store(sequence == 1 ? 8 : 16);
  }

  void Write(const HostSharedMemory& space, const shm::Segment& whole) const {
    // The poison lies in the first page.
    const auto begin = reinterpret_cast<uintptr_t>(&space.poison()) / kPage * kPage;
    const auto place = [&](const auto* field) {
      return static_cast<size_t>(reinterpret_cast<uintptr_t>(field) - begin);
    };
    const size_t areas[] = {
        0,
        place(&space.line(1 - own_, 0)),
        place(&space.line(1 - own_, 1)),
        place(&space.channel(1 - own_, own_)),
        place(&space.channel(own_, 1 - own_)),
        place(&space.sleep_words(0)),
        place(&space.poison()),
        place(&space.taken(1)),
        place(&space.line(own_, 0)),
    };
    Input input(writes_);
    while (!input.empty()) {
      const size_t area = areas[input.Byte() % (sizeof(areas) / sizeof(areas[0]))];
      const size_t offset = area + input.Number<uint16_t>();
      const absl::string_view bytes = input.Bytes(input.Byte());
      if (offset + bytes.size() > whole.size()) continue;
      std::memcpy(whole.data() + offset, bytes.data(), bytes.size());
    }
  }

  absl::Status Do(Communicator& rank, Instant deadline) const {
    if (operation_.collective != Collective::kExchange) {
      return rank.Run(operation_, input_data_, output_, deadline);
    }
    const Transfer transfers[] = {
        Transfer::Send(1 - own_, input_data_, operation_.count, operation_.type),
        Transfer::Receive(1 - own_, output_, operation_.count, operation_.type)};
    return rank.Exchange(transfers, deadline);
  }

  Input input_;
  int own_ = 0;
  bool proper_ = false;
  bool in_heap_ = false;
  bool in_place_ = false;
  int collective_ = 0;
  FlatCall operation_;
  int stage_ = 0;
  absl::string_view offsets_;
  absl::string_view writes_;
  std::unique_ptr<char[]> memory_[2];
  char* input_data_ = nullptr;
  char* output_ = nullptr;
};

}  // namespace

absl::Status CheckPeer(absl::string_view input, int* done) {
  int own_done = 0;
  return Call(input).Run(done != nullptr ? done : &own_done);
}

std::vector<std::string> SamplePeers() {
  std::vector<std::string> samples;
  const auto number = [](int64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const int64_t offsets[] = {0, -1, 64, int64_t{kHeapBytes} - 64, int64_t{1} << 62};
  for (int collective = 0; collective < kCollectiveCount; ++collective) {
    for (const int who :
         {kProperBit, kProperBit | kOwnRankBit | kHeapBit, kProperBit | kHeapBit | kRootBit}) {
      for (const int count : {3, 8, 12, 15}) {
        for (const int64_t offset : offsets) {
          const char head[] = {static_cast<char>(who),
                               static_cast<char>(collective),
                               11,
                               0,
                               static_cast<char>(count),
                               3};
          samples.push_back(std::string(head, sizeof(head)) + number(offset) + number(offset));
        }
      }
    }
  }
  // Impossible counts of taken fragments, such as a negative one: area 7.
  for (int64_t taken : {int64_t{-5}, int64_t{1} << 62, int64_t{5}}) {
    for (int sequence = 0; sequence < 2; ++sequence) {
      const char head[] = {kProperBit | kOwnRankBit | kHeapBit, 0, 11, 0, 15, 3};
      std::string sample = std::string(head, sizeof(head)) + number(0) + number(int64_t{24} << 20);
      sample += std::string({7, static_cast<char>(sequence * 64), 0, 8});
      samples.push_back(sample + number(taken));
    }
  }
  // A cause that is no text: area 6; its state comes first, then its size.
  samples.push_back(std::string("\2\0\13\0\3\0", 6) + std::string(16, '\0') +
                    std::string("\6\0\0\14\2\0\0\0\377\377\377\377\377\376\355\260", 16));
  // A message whose sender claims that it is longer than memory: area 3.
  samples.push_back(std::string("\2\11\13\0\10\0", 6) + number(-1) + number(-1) +
                    std::string("\3\100\0\20", 4) + number(1) + number(int64_t{1} << 61));
  return samples;
}

}  // namespace cohort::worker::fuzz
