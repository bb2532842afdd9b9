#include "client/rendezvous/session/send_fifo.h"

#include <algorithm>

namespace cohort::client {

void SendFifo::Take(const SendFifoKey& key, std::function<void()> start) {
  Enter(key, std::move(start));
}

uint64_t SendFifo::Enter(const SendFifoKey& key, std::function<void()> start) {
  {
    MutexLock lock(&mutex_);
    const auto [it, free] = fifos_.try_emplace(key);
    if (!free) {
      it->second.push_back(Waiting{++last_id_, std::move(start)});
      return last_id_;
    }
  }
  start();
  return 0;
}

bool SendFifo::Await(const SendFifoKey& key, Instant deadline,
                     const CallCancellations& cancellations) {
  return AwaitWakeup(key, [&](Wakeup& wakeup) {
    const CallCancellations::Listener listener(cancellations, [&wakeup] {
      MutexLock lock(&wakeup.mutex);
      wakeup.ended = true;
    });
    MutexLock lock(&wakeup.mutex);
    wakeup.mutex.AwaitWithTimeout(absl::Condition(&wakeup.ended),
                                  deadline - Clock::Steady().Now());
    return wakeup.here;
  });
}

bool SendFifo::AwaitWakeup(const SendFifoKey& key, absl::FunctionRef<bool(Wakeup&)> wait) {
  Wakeup wakeup;
  const uint64_t id = Enter(key, [&wakeup] {
    // Under the lock, because the waiting thread destroys `wakeup` as soon as it sees this.
    MutexLock lock(&wakeup.mutex);
    wakeup.here = wakeup.ended = true;
  });
  if (id == 0 || wait(wakeup)) return true;
  if (Withdraw(key, id)) return false;
  // The wake-up came meanwhile. This thread holds the FIFO, and has to end it.
  MutexLock lock(&wakeup.mutex);
  wakeup.mutex.Await(absl::Condition(&wakeup.here));
  return true;
}

bool SendFifo::Withdraw(const SendFifoKey& key, uint64_t id) {
  MutexLock lock(&mutex_);
  const auto it = fifos_.find(key);
  if (it == fifos_.end()) return false;
  std::list<Waiting>& waiting = it->second;
  const auto own = std::find_if(waiting.begin(), waiting.end(),
                                [id](const Waiting& entry) { return entry.id == id; });
  if (own == waiting.end()) return false;
  waiting.erase(own);
  return true;
}

void SendFifo::End(const SendFifoKey& key) {
  std::function<void()> next;
  {
    MutexLock lock(&mutex_);
    const auto it = fifos_.find(key);
    if (it->second.empty()) {
      fifos_.erase(it);
      return;
    }
    next = std::move(it->second.front().start);
    it->second.pop_front();
  }
  next();
}

}  // namespace cohort::client
