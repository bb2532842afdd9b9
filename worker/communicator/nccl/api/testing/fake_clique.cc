#include "worker/communicator/nccl/api/testing/fake_clique.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace cohort::worker {

FakeClique::FakeClique(int ranks, std::function<void(const std::string&)> report)
    : report_(std::move(report)), states_(static_cast<size_t>(ranks)) {}

void FakeClique::Run(int rank, const std::vector<FakeOperation>& operations,
                     absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  MutexLock lock(&mutex_);
  if (state(rank).stopped) return;
  ++state(rank).running;
  std::vector<PendingPtr> all_pending;
  std::vector<PendingPtr> complete;
  for (const FakeOperation& operation : operations) {
    const bool is_message = IsMessage(operation);
    all_pending.push_back(is_message ? JoinMessage(rank, operation) : Join(rank, operation));
    if (all_pending.back()->stage == Stage::kMoving) complete.push_back(all_pending.back());
  }
  // No rank withdraws an operation that moves.
  mutex_.Unlock();
  for (const PendingPtr& pending : complete) {
    if (IsMessage(*pending->operations.front())) {
      MoveMessage(*pending->operations[0], *pending->operations[1]);
    } else {
      MoveCollective(pending->operations);
    }
  }
  mutex_.Lock();
  for (const PendingPtr& pending : complete) pending->stage = Stage::kDone;
  changed_.SignalAll();

  for (size_t i = 0; i < all_pending.size(); ++i) {
    PendingOperation& pending = *all_pending[i];
    while (pending.stage != Stage::kDone) {
      const bool gives_up = state(rank).stopped || Clock::Steady().Now() > deadline;
      if (gives_up && pending.stage == Stage::kWaiting) {
        if (!state(rank).stopped) {
          report_(absl::StrCat("rank ", rank, " waited too long in ", Describe(operations[i])));
        }
        Withdraw(all_pending[i], operations[i]);
        break;
      }
      // A rank that moves data finishes soon.
      changed_.WaitWithTimeout(&mutex_, gives_up ? timeout : deadline - Clock::Steady().Now());
    }
  }
  --state(rank).running;
  changed_.SignalAll();
}

void FakeClique::Stop(int rank) {
  MutexLock lock(&mutex_);
  state(rank).stopped = true;
  changed_.SignalAll();
}

bool FakeClique::IsRunning(int rank) {
  MutexLock lock(&mutex_);
  return state(rank).running > 0;
}

bool FakeClique::AwaitIdle(int rank, absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  MutexLock lock(&mutex_);
  while (state(rank).running > 0) {
    const Instant now = Clock::Steady().Now();
    if (now > deadline) return false;
    changed_.WaitWithTimeout(&mutex_, deadline - now);
  }
  return true;
}

FakeClique::PendingPtr FakeClique::Join(int rank, const FakeOperation& operation) {
  const int64_t number = state(rank).collectives++;
  PendingPtr& slot = collectives_[number];
  if (slot == nullptr) {
    slot = std::make_shared<PendingOperation>();
    slot->operations.resize(states_.size());
  }
  const PendingPtr pending = slot;
  pending->operations[static_cast<size_t>(rank)] = &operation;
  if (++pending->come < ranks()) return pending;
  collectives_.erase(number);
  const bool agreed = Agree(pending->operations);
  if (!agreed) {
    for (const FakeOperation* other : pending->operations) {
      if (Agree({pending->operations[0], other})) continue;
      report_(absl::StrCat("ranks called different things: ", Describe(*pending->operations[0]),
                           ", and ", Describe(*other)));
      break;
    }
  }
  BeginMoving(*pending, agreed);
  return pending;
}

FakeClique::PendingPtr FakeClique::JoinMessage(int rank, const FakeOperation& operation) {
  const bool sends = operation.kind == FakeOperation::Kind::kSend;
  const Route route = sends ? Route(rank, operation.peer) : Route(operation.peer, rank);
  const size_t own = sends ? 0 : 1;
  std::deque<PendingPtr>& others = sends ? receives_[route] : sends_[route];
  if (others.empty()) {
    auto pending = std::make_shared<PendingOperation>();
    pending->operations.resize(2);
    pending->operations[own] = &operation;
    (sends ? sends_ : receives_)[route].push_back(pending);
    return pending;
  }
  const PendingPtr pending = others.front();
  others.pop_front();
  pending->operations[own] = &operation;
  const bool agreed = Match(*pending->operations[0], *pending->operations[1]);
  if (!agreed) {
    report_(absl::StrCat("a message from rank ", route.first, " to rank ", route.second,
                         " differs from the receive: ", Describe(*pending->operations[0]), ", and ",
                         Describe(*pending->operations[1])));
  }
  BeginMoving(*pending, agreed);
  return pending;
}

void FakeClique::BeginMoving(PendingOperation& pending, bool agreed) {
  const bool hangs = std::any_of(pending.operations.begin(), pending.operations.end(),
                                 [](const FakeOperation* operation) { return operation->hangs; });
  if (agreed && !hangs) pending.stage = Stage::kMoving;
}

void FakeClique::Withdraw(const PendingPtr& pending, const FakeOperation& operation) {
  std::replace(pending->operations.begin(), pending->operations.end(), &operation,
               static_cast<const FakeOperation*>(nullptr));
  --pending->come;
  for (auto* const queues : {&sends_, &receives_}) {
    for (auto& [route, queue] : *queues) {
      queue.erase(std::remove(queue.begin(), queue.end(), pending), queue.end());
    }
  }
}

}  // namespace cohort::worker
