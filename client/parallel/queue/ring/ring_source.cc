#include "client/parallel/queue/ring/ring_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/shm/futex.h"
#include "base/threads/wait_hook.h"
#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {

RingSource::RingSource(std::shared_ptr<RingMemory> ring, std::shared_ptr<PageMemory> page,
                       std::string writer)
    : ring_(std::move(ring)),
      page_(std::move(page)),
      writer_(std::move(writer)),
      position_(page_->page().head.load(std::memory_order_acquire)) {}

absl::string_view RingSource::Peek() {
  const uint64_t there = header().tail.load(std::memory_order_acquire) - position_;
  return absl::string_view(ring_->AtPosition(position_), std::min(there, ring_->capacity()));
}

void RingSource::Release(uint64_t bytes, uint64_t values) {
  position_ += bytes;
  values_ += values;
  page_->page().values.store(values_, std::memory_order_relaxed);
  MoveHead(page_->page(), position_);
}

absl::Status RingSource::Await(uint64_t bytes, const WaitLimit& limit) {
  const uint64_t wanted = position_ + bytes;
  // Bytes in the ring stay valid only as long as this reader has its slot.
  if (stopped_.load(std::memory_order_acquire)) return WhyOver();
  if (IsThere(wanted)) return absl::OkStatus();
  const Instant deadline = limit.deadline();
  LookOn(wanted, deadline);
  if (IsThere(wanted)) return absl::OkStatus();

  ReaderPage& page = page_->page();
  const auto listener = limit.OnCancel([&page](const absl::Status&) { WakeReader(page); });
  HookedWait hooked;
  while (true) {
    hooked.RunIfDue();
    const uint32_t event = page.reader_event.load(std::memory_order_seq_cst);
    page.reader_sleeps.store(1, std::memory_order_seq_cst);
    // The end is set after the last bytes, so it is read first: then no bytes are missed.
    const bool over = IsOver();
    absl::Status ended;
    if (IsThere(wanted)) break;
    if (over) ended = WhyOver();
    if (ended.ok()) ended = limit.Cancelled();
    const Instant now = Clock::Steady().Now();
    if (ended.ok() && now >= deadline) ended = absl::DeadlineExceededError("");
    if (!ended.ok()) {
      page.reader_sleeps.store(0, std::memory_order_relaxed);
      return ended;
    }
    shm::FutexWait(page.reader_event, event,
                   std::min(deadline, now + hooked.Shorten(kLongestSleep)));
    if (page.reader_event.load(std::memory_order_relaxed) != event) LookOn(wanted, deadline);
  }
  page.reader_sleeps.store(0, std::memory_order_relaxed);
  return absl::OkStatus();
}

void RingSource::LookOn(uint64_t wanted, Instant deadline) const {
  const uint32_t parties = header().parties.load(std::memory_order_relaxed);
  uint64_t before = 0;
  uint64_t tail = header().tail.load(std::memory_order_relaxed);
  do {
    before = tail;
    if (LookFor([&] { return IsThere(wanted) || IsOver(); }, parties)) return;
    tail = header().tail.load(std::memory_order_relaxed);
  } while (tail != before && Clock::Steady().Now() < deadline);
}

void RingSource::Stop(const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (why_stopped_.ok()) why_stopped_ = reason;
  }
  stopped_.store(true, std::memory_order_seq_cst);
  WakeReader(page_->page());
}

void RingSource::WriterGone(const std::string& why) {
  {
    MutexLock lock(&mutex_);
    why_gone_ = why;
  }
  writer_gone_.store(true, std::memory_order_seq_cst);
  WakeReader(page_->page());
}

void RingSource::LetGo(absl::string_view why) {
  Stop(absl::AbortedError(absl::StrCat(writer_, ", who writes it, let this reader go: ", why)));
}

absl::Status RingSource::WhyOver() const {
  MutexLock lock(&mutex_);
  if (!why_stopped_.ok()) return why_stopped_;
  if (header().ended.load(std::memory_order_acquire) != 0) {
    const size_t size = std::min<size_t>(header().reason_size, RingHeader::kMaxReason);
    return absl::CancelledError(
        absl::StrCat(writer_, " shut it down: ", WireText({header().reason, size}, size)));
  }
  return absl::AbortedError(absl::StrCat(writer_, ", who writes it, is gone: ", why_gone_));
}

}  // namespace cohort::parallel
