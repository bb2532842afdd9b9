#include "client/rendezvous/send_turns.h"

#include <algorithm>

namespace cohort::client {

void SendTurns::Take(const SendLane& lane, std::function<void()> start) {
  Enter(lane, std::move(start));
}

uint64_t SendTurns::Enter(const SendLane& lane, std::function<void()> start) {
  {
    MutexLock lock(&mutex_);
    const auto [it, free] = lanes_.try_emplace(lane);
    if (!free) {
      it->second.push_back(Waiting{++last_id_, std::move(start)});
      return last_id_;
    }
  }
  start();
  return 0;
}

bool SendTurns::Await(const SendLane& lane, Instant deadline) {
  return AwaitTurn(lane, [deadline](Turn& turn) {
    MutexLock lock(&turn.mutex);
    return turn.mutex.AwaitWithTimeout(absl::Condition(&turn.here),
                                       deadline - Clock::Steady().Now());
  });
}

bool SendTurns::AwaitTurn(const SendLane& lane, absl::FunctionRef<bool(Turn&)> wait) {
  Turn turn;
  const uint64_t id = Enter(lane, [&turn] {
    // Under the lock, because the waiting thread destroys `turn` as soon as it sees this.
    MutexLock lock(&turn.mutex);
    turn.here = true;
  });
  if (id == 0 || wait(turn)) return true;
  if (Withdraw(lane, id)) return false;
  // The turn came meanwhile. This thread holds the lane, and has to end it.
  MutexLock lock(&turn.mutex);
  turn.mutex.Await(absl::Condition(&turn.here));
  return true;
}

bool SendTurns::Withdraw(const SendLane& lane, uint64_t id) {
  MutexLock lock(&mutex_);
  const auto it = lanes_.find(lane);
  if (it == lanes_.end()) return false;
  std::list<Waiting>& waiting = it->second;
  const auto own = std::find_if(waiting.begin(), waiting.end(),
                                [id](const Waiting& entry) { return entry.id == id; });
  if (own == waiting.end()) return false;
  waiting.erase(own);
  return true;
}

void SendTurns::End(const SendLane& lane) {
  std::function<void()> next;
  {
    MutexLock lock(&mutex_);
    const auto it = lanes_.find(lane);
    if (it->second.empty()) {
      lanes_.erase(it);
      return;
    }
    next = std::move(it->second.front().start);
    it->second.pop_front();
  }
  next();
}

}  // namespace cohort::client
