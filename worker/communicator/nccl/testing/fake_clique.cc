#include "worker/communicator/nccl/testing/fake_clique.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace cohort::worker {

FakeClique::FakeClique(int ranks, std::function<void(const std::string&)> tell)
    : tell_(std::move(tell)), seats_(static_cast<size_t>(ranks)) {}

void FakeClique::Run(int rank, const std::vector<FakeOperation>& operations,
                     absl::Duration patience) {
  const Instant deadline = Clock::Steady().Now() + patience;
  MutexLock lock(&mutex_);
  if (seat(rank).stopped) return;
  ++seat(rank).running;
  std::vector<MeetingPtr> meetings;
  std::vector<MeetingPtr> complete;
  for (const FakeOperation& operation : operations) {
    const bool is_message = IsMessage(operation);
    meetings.push_back(is_message ? JoinMessage(rank, operation) : Join(rank, operation));
    if (meetings.back()->stage == Stage::kMoving) complete.push_back(meetings.back());
  }
  // No rank withdraws an operation from a meeting that moves.
  mutex_.Unlock();
  for (const MeetingPtr& meeting : complete) {
    if (IsMessage(*meeting->operations.front())) {
      MoveMessage(*meeting->operations[0], *meeting->operations[1]);
    } else {
      MoveCollective(meeting->operations);
    }
  }
  mutex_.Lock();
  for (const MeetingPtr& meeting : complete) meeting->stage = Stage::kDone;
  changed_.SignalAll();

  for (size_t i = 0; i < meetings.size(); ++i) {
    Meeting& meeting = *meetings[i];
    while (meeting.stage != Stage::kDone) {
      const bool gives_up = seat(rank).stopped || Clock::Steady().Now() > deadline;
      if (gives_up && meeting.stage == Stage::kWaiting) {
        if (!seat(rank).stopped) {
          tell_(absl::StrCat("rank ", rank, " waited too long in ", Describe(operations[i])));
        }
        Withdraw(meetings[i], operations[i]);
        break;
      }
      // A rank that moves a meeting finishes soon.
      changed_.WaitWithTimeout(&mutex_, gives_up ? patience : deadline - Clock::Steady().Now());
    }
  }
  --seat(rank).running;
  changed_.SignalAll();
}

void FakeClique::Stop(int rank) {
  MutexLock lock(&mutex_);
  seat(rank).stopped = true;
  changed_.SignalAll();
}

bool FakeClique::IsRunning(int rank) {
  MutexLock lock(&mutex_);
  return seat(rank).running > 0;
}

bool FakeClique::AwaitIdle(int rank, absl::Duration patience) {
  const Instant deadline = Clock::Steady().Now() + patience;
  MutexLock lock(&mutex_);
  while (seat(rank).running > 0) {
    const Instant now = Clock::Steady().Now();
    if (now > deadline) return false;
    changed_.WaitWithTimeout(&mutex_, deadline - now);
  }
  return true;
}

FakeClique::MeetingPtr FakeClique::Join(int rank, const FakeOperation& operation) {
  const int64_t number = seat(rank).collectives++;
  MeetingPtr& place = collectives_[number];
  if (place == nullptr) {
    place = std::make_shared<Meeting>();
    place->operations.resize(seats_.size());
  }
  const MeetingPtr meeting = place;
  meeting->operations[static_cast<size_t>(rank)] = &operation;
  if (++meeting->come < ranks()) return meeting;
  collectives_.erase(number);
  const bool agreed = Agree(meeting->operations);
  if (!agreed) {
    for (const FakeOperation* other : meeting->operations) {
      if (Agree({meeting->operations[0], other})) continue;
      tell_(absl::StrCat("ranks called different things: ", Describe(*meeting->operations[0]),
                         ", and ", Describe(*other)));
      break;
    }
  }
  BeginMoving(*meeting, agreed);
  return meeting;
}

FakeClique::MeetingPtr FakeClique::JoinMessage(int rank, const FakeOperation& operation) {
  const bool sends = operation.kind == FakeOperation::Kind::kSend;
  const Route route = sends ? Route(rank, operation.peer) : Route(operation.peer, rank);
  const size_t own = sends ? 0 : 1;
  std::deque<MeetingPtr>& others = sends ? receives_[route] : sends_[route];
  if (others.empty()) {
    auto meeting = std::make_shared<Meeting>();
    meeting->operations.resize(2);
    meeting->operations[own] = &operation;
    (sends ? sends_ : receives_)[route].push_back(meeting);
    return meeting;
  }
  const MeetingPtr meeting = others.front();
  others.pop_front();
  meeting->operations[own] = &operation;
  const bool agreed = Match(*meeting->operations[0], *meeting->operations[1]);
  if (!agreed) {
    tell_(absl::StrCat("a message from rank ", route.first, " to rank ", route.second,
                       " is not what is received: ", Describe(*meeting->operations[0]), ", and ",
                       Describe(*meeting->operations[1])));
  }
  BeginMoving(*meeting, agreed);
  return meeting;
}

void FakeClique::BeginMoving(Meeting& meeting, bool agreed) {
  const bool hangs = std::any_of(meeting.operations.begin(), meeting.operations.end(),
                                 [](const FakeOperation* operation) { return operation->hangs; });
  if (agreed && !hangs) meeting.stage = Stage::kMoving;
}

void FakeClique::Withdraw(const MeetingPtr& meeting, const FakeOperation& operation) {
  std::replace(meeting->operations.begin(), meeting->operations.end(), &operation,
               static_cast<const FakeOperation*>(nullptr));
  --meeting->come;
  for (auto* const queues : {&sends_, &receives_}) {
    for (auto& [route, queue] : *queues) {
      queue.erase(std::remove(queue.begin(), queue.end(), meeting), queue.end());
    }
  }
}

}  // namespace cohort::worker
