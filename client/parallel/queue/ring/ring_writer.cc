#include "client/parallel/queue/ring/ring_writer.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/shm/futex.h"
#include "base/status_macros.h"
#include "base/threads/wait_hook.h"
#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {
namespace {

// Readers see a large value in steps of this size, so that they copy out while it is copied in.
constexpr uint64_t kStep = uint64_t{128} << 10;
// Limits parts in rings of any size: a record has 32 bits for its bytes.
constexpr uint64_t kLargestPart = uint64_t{1} << 30;
// As long as readers keep up, the writer uses only this part of the ring: it stays in the caches,
// and the rest of the ring takes no memory.
constexpr uint64_t kWindow = uint64_t{256} << 10;
constexpr size_t kMostDepartures = 1024;
constexpr size_t kMostNamed = 8;

}  // namespace

RingWriter::RingWriter(std::shared_ptr<RingMemory> ring, bool alone)
    : ring_(std::move(ring)),
      alone_(alone),
      largest_record_(std::min(ring_->capacity() / 2, kLargestPart)) {
  ring_->header().parties.store(1, std::memory_order_relaxed);
}

absl::Status RingWriter::Write(absl::string_view value, const WaitLimit& limit) {
  int idle = kIdle;
  while (!busy_.compare_exchange_weak(idle, kWriting, std::memory_order_seq_cst)) {
    if (idle == kWriting) {
      return absl::FailedPreconditionError("another thread is writing a value");
    }
    idle = kIdle;
    sched_yield();  // a reader is being let in
  }
  const absl::Cleanup give_back = [this] {
    busy_.store(kIdle, std::memory_order_seq_cst);
    TidyUnlessWriting();
  };
  if (changed_.load(std::memory_order_seq_cst)) Tidy();
  if (ended()) return WhyStopped();
  if (slots_.empty() && !alone_) return NoReaders();
  COHORT_RETURN_IF_ERROR(WriteParts(value, limit));
  values_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status RingWriter::WriteParts(absl::string_view value, const WaitLimit& limit) {
  if (abandoned_) {
    COHORT_RETURN_IF_ERROR(WritePart({}, {0, 0, RecordHeader::kAbandoned}, limit));
    abandoned_ = false;
  }
  RecordHeader header = {value.size(), 0, RecordHeader::kWhole};
  if (RecordBytes(value.size()) <= largest_record_) {
    header.part_bytes = static_cast<uint32_t>(value.size());
    return WritePart(value, header, limit);
  }
  // In quarters: while one is read, the next is written.
  const uint64_t quarter = std::min(ring_->capacity() / 4, kLargestPart);
  const uint64_t step = (quarter - sizeof(header)) / kRecordAlign * kRecordAlign;
  header.kind = RecordHeader::kFirst;
  for (uint64_t done = 0; done < value.size(); done += header.part_bytes) {
    header.part_bytes = static_cast<uint32_t>(std::min(step, value.size() - done));
    absl::Status written = WritePart(value.substr(done, header.part_bytes), header, limit);
    if (!written.ok()) {
      abandoned_ = done > 0;
      return written;
    }
    header.kind = RecordHeader::kNext;
  }
  return absl::OkStatus();
}

absl::Status RingWriter::WritePart(absl::string_view part, const RecordHeader& header,
                                   const WaitLimit& limit) {
  const uint64_t record = RecordBytes(part.size());
  COHORT_RETURN_IF_ERROR(AwaitRoom(record, limit));
  // A reader that leaves later may have read it.
  if (!alone_ && changed_.load(std::memory_order_seq_cst) &&
      std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->gone(); })) {
    return NoReaders();
  }
  const uint64_t begin = tail_;
  Rewind();
  char* const place = ring_->AtPosition(begin);
  std::memcpy(place, &header, sizeof(header));
  uint64_t done = 0;
  do {
    const uint64_t size = std::min<uint64_t>(kStep, part.size() - done);
    if (size > 0) std::memcpy(place + sizeof(header) + done, part.data() + done, size);
    done += size;
    Publish(begin + (done == part.size() ? record : sizeof(header) + done));
  } while (done < part.size());
  return absl::OkStatus();
}

void RingWriter::Rewind() {
  if (tail_ < rewind_at_) return;
  const uint64_t window = std::min(kWindow, ring_->capacity() / 4);
  // A look takes a cache line from each reader.
  rewind_at_ = tail_ + window / 8;
  for (const std::shared_ptr<ReaderSlot>& slot : slots_) {
    if (HeadOf(*slot) != tail_) return;
  }
  const uint64_t shift = (ring_->capacity() - tail_ % ring_->capacity()) % ring_->capacity();
  ring_->header().shift.store(shift, std::memory_order_relaxed);
  rewind_at_ = tail_ + window;
}

void RingWriter::Publish(uint64_t tail) {
  tail_ = tail;
  ring_->header().tail.store(tail, std::memory_order_seq_cst);
  for (const std::shared_ptr<ReaderSlot>& slot : slots_) {
    if (slot->page().reader_sleeps.load(std::memory_order_seq_cst) != 0 && !slot->gone()) {
      slot->Wake();
    }
  }
}

uint64_t RingWriter::HeadOf(ReaderSlot& slot) {
  if (slot.gone()) return tail_;
  const uint64_t head = slot.page().head.load(std::memory_order_acquire);
  if (head < slot.head_ || head > tail_) {
    Leave(slot, absl::StrCat("it claims to have read up to ", head, ", which is not between ",
                             slot.head_, " and ", tail_));
    return tail_;
  }
  return slot.head_ = head;
}

absl::Status RingWriter::AwaitRoom(uint64_t bytes, const WaitLimit& limit) {
  const uint64_t end = tail_ + bytes;
  if (end <= room_until_) return absl::OkStatus();
  const uint64_t wanted = end - std::min(end, ring_->capacity());
  while (true) {
    uint64_t least = tail_;
    const std::shared_ptr<ReaderSlot>* slowest = nullptr;
    for (const std::shared_ptr<ReaderSlot>& slot : slots_) {
      const uint64_t head = HeadOf(*slot);
      if (head >= least) continue;
      least = head;
      slowest = &slot;
    }
    if (least >= wanted) {
      room_until_ = least + ring_->capacity();
      return absl::OkStatus();
    }
    if (!AwaitHead(*slowest, wanted, limit)) return NoRoom(bytes, wanted, limit);
  }
}

bool RingWriter::AwaitHead(const std::shared_ptr<ReaderSlot>& slot, uint64_t wanted,
                           const WaitLimit& limit) {
  ReaderPage& page = slot->page();
  const auto ready = [&] {
    return page.head.load(std::memory_order_seq_cst) >= wanted || slot->gone();
  };
  const uint32_t parties = ring_->header().parties.load(std::memory_order_relaxed);
  const Instant deadline = limit.deadline();
  if (LookFor([&] { return ready() || ended(); }, parties)) return ready();
  {
    MutexLock lock(&mutex_);
    awaited_ = slot;
  }
  auto listener = limit.OnCancel([&page](const absl::Status&) { WakeWriter(page); });
  bool came = false;
  HookedWait hooked;
  while (true) {
    hooked.RunIfDue();
    const uint32_t event = page.writer_event.load(std::memory_order_seq_cst);
    page.awaited_head.store(wanted, std::memory_order_seq_cst);
    came = ready();
    const Instant now = Clock::Steady().Now();
    if (came || ended() || now >= deadline || !limit.Cancelled().ok()) break;
    shm::FutexWait(page.writer_event, event,
                   std::min(deadline, now + hooked.Shorten(kLongestSleep)));
  }
  page.awaited_head.store(kNobody, std::memory_order_relaxed);
  listener.reset();
  MutexLock lock(&mutex_);
  awaited_ = nullptr;
  return came;
}

absl::Status RingWriter::NoRoom(uint64_t bytes, uint64_t wanted, const WaitLimit& limit) {
  if (ended()) return WhyStopped();
  COHORT_RETURN_IF_ERROR(limit.Cancelled());
  std::vector<std::string> late;
  size_t count = 0;
  for (const std::shared_ptr<ReaderSlot>& slot : slots_) {
    const uint64_t head = HeadOf(*slot);
    if (head >= wanted || ++count > kMostNamed) continue;
    const uint64_t read = slot->page().values.load(std::memory_order_relaxed);
    const uint64_t written = values();
    late.push_back(absl::StrCat(slot->name(), " is ", tail_ - head, " bytes (",
                                written - std::min(read, written), " values) behind"));
  }
  if (count > kMostNamed) late.push_back(absl::StrCat(count - kMostNamed, " more readers"));
  return absl::DeadlineExceededError(absl::StrCat("no room for ", bytes, " bytes in a ring of ",
                                                  ring_->capacity(), ": ",
                                                  absl::StrJoin(late, ", ")));
}

absl::Status RingWriter::NoReaders() const {
  MutexLock lock(&mutex_);
  if (!any_came_) return absl::FailedPreconditionError("no reader has joined");
  std::vector<std::string> left;
  for (const QueueDeparture& departure : departures_) {
    if (left.size() == kMostNamed) break;
    left.push_back(absl::StrCat(departure.name, " (", departure.why, ")"));
  }
  return absl::AbortedError(absl::StrCat("all readers are gone: ", absl::StrJoin(left, ", "),
                                         departures_.size() > left.size() ? " and others" : ""));
}

absl::Status RingWriter::WhyStopped() const {
  MutexLock lock(&mutex_);
  return absl::CancelledError(absl::StrCat("it was shut down: ", reason_));
}

void RingWriter::Tidy() {
  std::vector<std::shared_ptr<ReaderSlot>> admitted;
  {
    MutexLock lock(&mutex_);
    changed_.store(false, std::memory_order_seq_cst);
    slots_.erase(
        std::remove_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->gone(); }),
        slots_.end());
    for (std::shared_ptr<ReaderSlot>& slot : coming_) {
      if (slot->gone()) continue;
      slot->head_ = tail_;
      slot->page().values.store(values(), std::memory_order_relaxed);
      slot->page().head.store(tail_, std::memory_order_seq_cst);
      admitted.push_back(slot);
      slots_.push_back(std::move(slot));
      any_came_ = true;
    }
    coming_.clear();
    ring_->header().parties.store(static_cast<uint32_t>(1 + slots_.size()),
                                  std::memory_order_relaxed);
  }
  for (const std::shared_ptr<ReaderSlot>& slot : admitted) slot->Admitted();
  Changed();
}

void RingWriter::TidyUnlessWriting() {
  while (changed_.load(std::memory_order_seq_cst)) {
    int idle = kIdle;
    // The thread that is busy looks again when it is done.
    if (!busy_.compare_exchange_strong(idle, kTidying, std::memory_order_seq_cst)) return;
    Tidy();
    busy_.store(kIdle, std::memory_order_seq_cst);
  }
}

void RingWriter::Admit(std::shared_ptr<ReaderSlot> slot) {
  {
    MutexLock lock(&mutex_);
    coming_.push_back(std::move(slot));
    changed_.store(true, std::memory_order_seq_cst);
  }
  TidyUnlessWriting();
}

void RingWriter::Leave(ReaderSlot& slot, absl::string_view why) {
  {
    MutexLock lock(&mutex_);
    if (slot.gone()) return;
    // After the queue ended, readers that leave are no departures.
    if (!ended()) {
      if (departures_.size() == kMostDepartures) departures_.erase(departures_.begin());
      departures_.push_back({slot.name(), std::string(why)});
    }
    slot.gone_.store(true, std::memory_order_seq_cst);
    changed_.store(true, std::memory_order_seq_cst);
  }
  WakeWriter(slot.page());
  slot.Left(why);
  Changed();
  TidyUnlessWriting();
}

void RingWriter::Take(Busy as) {
  int idle = kIdle;
  while (!busy_.compare_exchange_weak(idle, as, std::memory_order_seq_cst)) {
    idle = kIdle;
    sched_yield();
  }
}

void RingWriter::WakeSelf() {
  MutexLock lock(&mutex_);
  if (awaited_ != nullptr) WakeWriter(awaited_->page());
}

void RingWriter::End(absl::string_view reason) {
  {
    MutexLock lock(&mutex_);
    if (ended()) return;
    reason_ = WireText(reason, RingHeader::kMaxReason);
    stopped_.store(true, std::memory_order_seq_cst);
  }
  WakeSelf();
  // A thread that writes is done soon: it does not wait any more.
  Take(kTidying);
  RingHeader& header = ring_->header();
  {
    MutexLock lock(&mutex_);
    header.reason_size = static_cast<uint32_t>(reason_.size());
    std::memcpy(header.reason, reason_.data(), reason_.size());
  }
  header.ended.store(1, std::memory_order_seq_cst);
  for (const std::shared_ptr<ReaderSlot>& slot : slots_) {
    if (slot->page().reader_sleeps.load(std::memory_order_seq_cst) != 0) slot->Wake();
  }
  busy_.store(kIdle, std::memory_order_seq_cst);
  Changed();
  TidyUnlessWriting();
}

std::vector<QueueReader> RingWriter::readers() const {
  MutexLock lock(&mutex_);
  const uint64_t end = tail();
  const uint64_t written = values();
  std::vector<QueueReader> result;
  for (const std::shared_ptr<ReaderSlot>& slot : slots_) {
    if (slot->gone()) continue;
    const uint64_t head = slot->page().head.load(std::memory_order_relaxed);
    const uint64_t read = slot->page().values.load(std::memory_order_relaxed);
    result.push_back({slot->name(), slot->path(), static_cast<int64_t>(end - std::min(head, end)),
                      static_cast<int64_t>(written - std::min(read, written))});
  }
  return result;
}

std::vector<QueueDeparture> RingWriter::departures() const {
  MutexLock lock(&mutex_);
  return departures_;
}

void RingWriter::Changed() const {
  MutexLock lock(&mutex_);
  ++changes_;
  change_.SignalAll();
}

bool RingWriter::AwaitChange(absl::FunctionRef<bool()> done, const WaitLimit& limit) const {
  const auto listener = limit.OnCancel([this](const absl::Status&) { Changed(); });
  while (true) {
    uint64_t seen = 0;
    {
      MutexLock lock(&mutex_);
      seen = changes_;
    }
    if (done()) return true;
    if (ended() || !limit.Cancelled().ok()) return false;
    MutexLock lock(&mutex_);
    while (changes_ == seen) {
      const absl::Duration left = limit.deadline() - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) return false;
      change_.WaitWithTimeout(&mutex_, left);
    }
  }
}

}  // namespace cohort::parallel
