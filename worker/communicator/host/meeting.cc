#include "worker/communicator/host/meeting.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/shm/futex.h"

namespace cohort::worker {
namespace {

// A look costs a few nanoseconds as long as nobody writes; a sleeper costs tens of microseconds.
constexpr int kLooks = 4000;
constexpr int kYields = 200;
// Of the looks, between two at the poison and the clock.
constexpr int kLooksBetween = 64;

int Processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return CPU_COUNT(&allowed);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sixteen bits of the scale: they tell two apart, and are not read back.
uint64_t ScaleBits(double scale) {
  uint64_t bits;
  std::memcpy(&bits, &scale, sizeof(bits));
  bits ^= bits >> 32;
  return (bits ^ bits >> 16) & 0xFFFF;
}

uint64_t Encode(const Operation& operation, int stage) {
  uint64_t what = static_cast<uint64_t>(operation.verb) |
                  static_cast<uint64_t>(operation.type) << 8 | static_cast<uint64_t>(stage) << 24;
  if (Reduces(operation.verb)) what |= static_cast<uint64_t>(operation.reduction.op) << 16;
  if (HasRoot(operation.verb)) what |= static_cast<uint64_t>(operation.root & 0xFFFF) << 32;
  if (operation.reduction.op == ReduceOp::kPreMulSum) {
    what |= ScaleBits(operation.reduction.scale) << 48;
  }
  return what;
}

// Whatever another process has written there.
std::string Describe(uint64_t what, int64_t count) {
  Operation operation;
  operation.verb = static_cast<Verb>(what & 0xFF);
  operation.count = count;
  const int type = static_cast<int>(what >> 8 & 0xFF);
  const int op = static_cast<int>(what >> 16 & 0xFF);
  operation.root = static_cast<int>(what >> 32 & 0xFFFF);
  if (!IsDataType(type) || (Reduces(operation.verb) && !IsReduceOp(op))) {
    return NameOf(operation.verb);
  }
  operation.type = static_cast<DataType>(type);
  std::string scale;
  if (Reduces(operation.verb)) {
    operation.reduction.op = static_cast<ReduceOp>(op);
    if (operation.reduction.op == ReduceOp::kPreMulSum) {
      operation.reduction.op = ReduceOp::kSum;
      scale = absl::StrCat(" (scaled, #", what >> 48, ")");
    }
  }
  return absl::StrCat(Describe(operation), scale);
}

}  // namespace

Meeting::Meeting(const HostSpace& space, int rank)
    : space_(space),
      rank_(rank),
      looks_(space.ranks() <= Processors() ? kLooks : kYields),
      yields_(space.ranks() > Processors()) {}

bool Meeting::Here(int rank) const {
  return space_.line(rank, turn_).turn.load(std::memory_order_acquire) == turn_;
}

absl::Status Meeting::Meet(const Operation& operation, int stage, Instant deadline) {
  if (space_.poison().state.load(std::memory_order_relaxed) != Poison::kNone) return Poisoned();
  ++turn_;
  ArrivalLine& own = space_.line(rank_, turn_);
  own.what = Encode(operation, stage);
  own.count = operation.count;
  own.turn.store(turn_, std::memory_order_release);
  WakeSleepers();
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (Here(rank)) continue;
    if (absl::Status status = Await(rank, operation, deadline); !status.ok()) return status;
  }
  return Compare();
}

void Meeting::WakeSleepers() {
  // Either this sees the sleeper, or the sleeper sees the line.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  SleepWords& words = space_.sleep_words();
  if (words.sleepers.load(std::memory_order_relaxed) == 0) return;
  words.event.fetch_add(1, std::memory_order_release);
  shm::FutexWakeAll(words.event);
}

absl::Status Meeting::Await(int rank, const Operation& operation, Instant deadline) {
  const std::atomic<uint32_t>& poison = space_.poison().state;
  for (int look = 1; look <= looks_; ++look) {
    if (Here(rank)) return absl::OkStatus();
    yields_ ? static_cast<void>(sched_yield()) : Pause();
    if (look % kLooksBetween == 0 && poison.load(std::memory_order_relaxed) != Poison::kNone) break;
  }
  while (true) {
    if (Here(rank)) return absl::OkStatus();
    if (poison.load(std::memory_order_acquire) != Poison::kNone) return Poisoned();
    if (Clock::Steady().Now() >= deadline) return GiveUp(operation);
    Sleep(rank, deadline);
  }
}

void Meeting::Sleep(int rank, Instant deadline) {
  SleepWords& words = space_.sleep_words();
  words.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t event = words.event.load(std::memory_order_acquire);
  if (!Here(rank) && space_.poison().state.load(std::memory_order_acquire) == Poison::kNone) {
    shm::FutexWait(words.event, event, deadline);
  }
  words.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

absl::Status Meeting::GiveUp(const Operation& operation) {
  RankSet missing;
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank)) missing.Add(rank);
  }
  const std::string text =
      absl::StrCat(worker::Describe(operation), ": rank ", missing.ToString(), " did not come");
  Abort(absl::StrCat("rank ", rank_, " gave up ", text));
  return absl::DeadlineExceededError(text);
}

void Meeting::Abort(absl::string_view cause) {
  Poison& poison = space_.poison();
  uint32_t none = Poison::kNone;
  if (poison.state.compare_exchange_strong(none, Poison::kBeingWritten)) {
    const size_t size = std::min(cause.size(), Poison::kMaxText);
    std::memcpy(poison.text, cause.data(), size);
    poison.size = static_cast<uint32_t>(size);
    poison.state.store(Poison::kWritten, std::memory_order_release);
  }
  WakeSleepers();
}

absl::Status Meeting::Poisoned() const {
  const Poison& poison = space_.poison();
  // Its writer is about to finish; should it die in between, the text is lost, and no more.
  const Instant patience = Clock::Steady().Now() + absl::Milliseconds(100);
  while (poison.state.load(std::memory_order_acquire) != Poison::kWritten) {
    if (Clock::Steady().Now() > patience)
      return absl::AbortedError("a rank ended the communicator");
    sched_yield();
  }
  const size_t size = std::min<size_t>(poison.size, Poison::kMaxText);
  return absl::AbortedError(std::string(poison.text, size));
}

absl::Status Meeting::Compare() const {
  const ArrivalLine& first = space_.line(0, turn_);
  for (int rank = 1; rank < space_.ranks(); ++rank) {
    const ArrivalLine& other = space_.line(rank, turn_);
    if (other.what == first.what && other.count == first.count) continue;
    return absl::InvalidArgumentError(absl::StrCat("ranks called different things: rank 0 ",
                                                   Describe(first.what, first.count), "; rank ",
                                                   rank, " ", Describe(other.what, other.count)));
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
