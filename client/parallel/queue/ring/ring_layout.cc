#include "client/parallel/queue/ring/ring_layout.h"

#include "base/shm/futex.h"

namespace cohort::parallel {

void MoveHead(ReaderPage& page, uint64_t head) {
  page.head.store(head, std::memory_order_seq_cst);
  if (head < page.awaited_head.load(std::memory_order_seq_cst)) return;
  page.awaited_head.store(kNobody, std::memory_order_relaxed);
  WakeWriter(page);
}

void WakeWriter(ReaderPage& page) {
  page.writer_event.fetch_add(1, std::memory_order_seq_cst);
  shm::FutexWakeAll(page.writer_event);
}

void WakeReader(ReaderPage& page) {
  page.reader_event.fetch_add(1, std::memory_order_seq_cst);
  shm::FutexWakeAll(page.reader_event);
}

}  // namespace cohort::parallel
