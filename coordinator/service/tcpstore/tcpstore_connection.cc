#include "coordinator/service/tcpstore/tcpstore_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/access/role.h"
#include "base/clock.h"
#include "coordinator/service/dispatch/method_table.h"

namespace cohort::coordinator::tcpstore {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr int kRequestsPerTurn = 512;
constexpr absl::Duration kTurn = absl::Milliseconds(1);
// A request of fewer bytes takes microseconds, unless its answer is large. The clock is read after
// each other one, and after so many of these.
constexpr size_t kLongRequestBytes = 4096;
constexpr int kRequestsBetweenLooks = 8;

// Lent to the connection that reads.
char* SpareBuffer() {
  static thread_local std::array<char, kReadBytes> spare;
  return spare.data();
}

RequestLimits LimitsOf(Dispatcher& dispatcher) {
  RequestLimits limits;
  limits.max_value_bytes = static_cast<size_t>(dispatcher.engine().limits().max_value_bytes);
  limits.max_message_bytes = static_cast<size_t>(dispatcher.max_message_bytes());
  return limits;
}

}  // namespace

Connection::Connection(int fd, int port, EventLoop& loop, FairTurns& turns, Dispatcher& dispatcher,
                       Jobs& jobs, ListenerPeer peer)
    : fd_(fd),
      socket_{fd, peer.tls},
      port_(port),
      loop_(loop),
      turns_(turns),
      dispatcher_(dispatcher),
      jobs_(jobs),
      peer_(std::move(peer)),
      client_(peer_.address),
      reader_(LimitsOf(dispatcher)),
      charge_(peer_.charged()),
      unread_charge_(dispatcher.engine(), dispatcher.engine().tenants().Of(TenantOfPort(port))),
      events_(EPOLLIN) {}

Connection::~Connection() { close(fd_); }

void Connection::OnEvents(uint32_t events) {
  // A paused connection hears in no other way that its client has gone.
  if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) return Close();
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    if ((events & EPOLLOUT) != 0) {
      blocked_ = false;
      FlushLocked();
    }
  }
  AwaitTurn();
}

void Connection::AwaitTurn() {
  if (std::exchange(awaits_turn_, true)) return;
  if (turns_client_ == nullptr) turns_client_ = turns_.ClientOf(TenantOfPort(port_));
  turns_.Add(turns_client_, shared_from_this());
}

void Connection::OnTurn() {
  awaits_turn_ = false;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    paused_ = Backlogged();
    if (paused_) return UpdateEvents();
    handling_ = true;
  }
  requests_left_ = kRequestsPerTurn;
  turn_end_ = Clock::Steady().Now() + kTurn;
  // Bytes that were read before come first.
  absl::string_view before = input_;
  bool open = HandleInput(&before);
  if (open) {
    input_.erase(0, input_.size() - before.size());
    open = ReadSome();
  }
  bool again = false;
  {
    MutexLock lock(&mutex_);
    handling_ = false;
    FlushLocked();
    const bool resumes = paused_ && !Backlogged();  // the socket took the backlog at once
    if (resumes) paused_ = false;
    again = open && !paused_ && (resumes || requests_left_ == 0 || socket_.HasInput());
  }
  if (!open) return Close();
  if (again) AwaitTurn();
}

bool Connection::ReadSome() {
  while (requests_left_ > 0) {
    {
      MutexLock lock(&mutex_);
      if (paused_) return true;
    }
    char* const spare = SpareBuffer();
    const ssize_t count = socket_.Receive(spare, kReadBytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) return false;
    absl::string_view input(spare, static_cast<size_t>(count));
    if (!input_.empty()) {
      input_.append(input.data(), input.size());
      input = input_;
    }
    const bool is_own = input.data() == input_.data();
    if (!HandleInput(&input)) return false;
    if (is_own) {
      input_.erase(0, input_.size() - input.size());
    } else {
      input_.assign(input.data(), input.size());
    }
    if (input_.empty()) input_ = std::string();  // most connections wait for a whole request
    charge_.MoveTo(peer_.charged());
    if (charge_.Set(static_cast<int64_t>(input_.capacity()))) {
      const absl::Status room = charge_.all()->Check();
      if (!room.ok()) {
        Complain(room);
        return false;
      }
    }
    // Less than asked for is all there was.
    if (static_cast<size_t>(count) < kReadBytes) return true;
  }
  return true;
}

bool Connection::HandleInput(absl::string_view* input) {
  if (input->empty()) return true;
  if (!dialect_.has_value()) dialect_ = DialectOf(*input);
  while (!input->empty() && requests_left_ > 0) {
    {
      MutexLock lock(&mutex_);
      paused_ = Backlogged();
      if (paused_) return true;
    }
    const absl::StatusOr<size_t> size = reader_.Read(*dialect_, *input, &request_);
    if (!size.ok()) {
      Complain(size.status());
      return false;
    }
    if (*size == 0) return MaySendMore();
    begun_ = false;
    --requests_left_;
    const bool may_take_long = *size >= kLongRequestBytes || MayBeLarge(request_.operation);
    if (!HandleRequest(request_)) return false;
    if ((may_take_long || requests_left_ % kRequestsBetweenLooks == 0) &&
        Clock::Steady().Now() > turn_end_) {
      requests_left_ = 0;
    }
    input->remove_prefix(*size);
  }
  return true;
}

bool Connection::HandleRequest(const Request& request) {
  switch (request.operation) {
    case Operation::kValidate:
      return true;
    case Operation::kPing: {
      std::string echo;
      AppendNumber(static_cast<uint64_t>(request.number), &echo);
      MutexLock lock(&mutex_);
      output_.Append(absl::string_view(echo).substr(0, sizeof(uint32_t)));
      return true;
    }
    case Operation::kCancelWait:
      CancelWait();
      return true;
    case Operation::kBarrier:
      return StartBarrier(request);
    default:
      break;
  }
  Call call;
  const Method method = MethodOf(request.operation);
  if (!Admit(method, &call.caller)) return false;
  if (!job_client_.has_written && GetMethod(method).role >= Role::kMember) {
    jobs_.EnterAsWriter(port_, &job_client_);
  }
  if (request.operation == Operation::kAdd && request.keys[0] == kRanksKey) {
    jobs_.EnterAsRank(port_, &job_client_);
  }
  PendingAnswer& answer = AddAnswer(request.operation);
  call.body = MakeCall(request, client_, &answer.asked);
  if (request.operation == Operation::kWait) call.wait = kNoEnd;
  answer.self = shared_from_this();
  dispatcher_.engine().Submit(std::move(call), &answer, &answer.handle);
  MutexLock lock(&mutex_);
  return !broken_;
}

bool Connection::MaySendMore() {
  const Operation operation = reader_.operation();
  const bool needs_rights = HasCall(operation) || operation == Operation::kBarrier;
  if (std::exchange(begun_, true) || !needs_rights) return true;
  Caller caller;
  return HasRights(MethodOf(operation), &caller);
}

bool Connection::HasRights(Method method, Caller* caller) {
  caller->key.tenant = TenantOfPort(port_);
  const absl::Status admitted = dispatcher_.Admit(method, peer_.access.get(), caller);
  if (!admitted.ok()) Complain(admitted);
  return admitted.ok();
}

bool Connection::Admit(Method method, Caller* caller) {
  const bool admitted = HasRights(method, caller);
  dispatcher_.CountRequest(peer_.access.get(), *caller, TenantRates::kFramedRequest, 0);
  if (!admitted || job_client_.has_ended.load()) return false;
  if (job_client_.job == 0) {
    job_client_.close = [weak = weak_from_this()] {
      if (const std::shared_ptr<Connection> self = weak.lock(); self != nullptr) self->CloseSoon();
    };
    jobs_.Enter(port_, &job_client_);
  }
  return true;
}

bool Connection::StartBarrier(const Request& request) {
  Caller caller;
  if (!Admit(Method::kBarrier, &caller)) return false;
  PendingAnswer& answer = AddAnswer(Operation::kWait);  // a barrier is answered as a wait
  answer.self = shared_from_this();
  const auto fail = [weak = weak_from_this()](const absl::Status& why) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (self == nullptr) return;
    self->Complain(why);
    self->CloseSoon();
  };
  const absl::StatusOr<bool> released =
      jobs_.EnterBarrier(port_, request.keys[0], request.number, client_, fail, &answer,
                         &answer.handle, &answer.barrier);
  if (released.ok() && !*released) return true;  // `answer` may be gone by now
  OnAnswer(answer, released.status(), {std::string(1, kStopWaiting), {}}, nullptr);
  return released.ok();
}

void Connection::CancelWait() {
  CallHandle handle;
  Jobs::BarrierPlace barrier;
  {
    MutexLock lock(&mutex_);
    for (PendingAnswer& answer : answers_) {
      if (answer.asked.operation != Operation::kWait) continue;
      answer.cancelled = true;
      handle = answer.handle;
      barrier = answer.barrier;
    }
    if (handle.id == 0) output_.Append(absl::string_view(&kWaitCancelled, 1));
  }
  if (handle.id == 0) return;  // the wait was answered before
  if (barrier.round != 0) jobs_.LeaveBarrier(port_, barrier);
  // Otherwise its reply is on its way, and the answer to cancel_wait follows that.
  if (!CancelCall(handle)) return;
  MutexLock lock(&mutex_);
  output_.Append(absl::string_view(&kWaitCancelled, 1));
}

void Connection::Complain(const absl::Status& status) { peer_.on_offence(status); }

void Connection::CancelCalls() {
  std::vector<std::pair<CallHandle, Jobs::BarrierPlace>> calls;
  {
    MutexLock lock(&mutex_);
    for (const Jobs::BarrierPlace& barrier : lost_barriers_) {
      calls.emplace_back(CallHandle(), barrier);
    }
    for (const PendingAnswer& answer : answers_) {
      calls.emplace_back(answer.handle, answer.barrier);
    }
  }
  for (const auto& [handle, barrier] : calls) {
    if (barrier.round != 0) jobs_.LeaveBarrier(port_, barrier);
    if (handle.id != 0) CancelCall(handle);
  }
}

bool Connection::CancelCall(const CallHandle& handle) {
  if (!dispatcher_.engine().Cancel(handle)) return false;
  MutexLock lock(&mutex_);
  for (PendingAnswer& answer : answers_) {
    if (answer.handle.id != handle.id || answer.handle.shard != handle.shard) continue;
    EndAnswer(answer, absl::StatusCode::kCancelled);
    break;
  }
  return true;
}

void Connection::CloseSoon() {
  loop_.Post([self = shared_from_this()] { self->Close(); });
}

void Connection::Close() {
  const std::shared_ptr<Connection> self = shared_from_this();
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    unread_charge_.Set(0).IgnoreError();
  }
  loop_.Remove(fd_);
  shutdown(fd_, SHUT_RDWR);
  CancelCalls();
  if (job_client_.job != 0) jobs_.Leave(port_, &job_client_);
}

bool Connection::WaitUntilWritten(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || broken_ || output_.size() == 0;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&written), timeout);
}

}  // namespace cohort::coordinator::tcpstore
