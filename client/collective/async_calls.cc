#include "client/collective/async_calls.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/threads/thread.h"

namespace cohort::client {

struct PendingCall::State {
  using DoneCallback = std::function<void(const absl::Status&)>;

  State(Group& group, AsyncCalls::Call call, std::atomic<int>& unfinished)
      : group(group), call(std::move(call)), unfinished(unfinished) {
    ++unfinished;
  }

  void Finish(absl::Status result) {
    call = nullptr;
    --unfinished;  // before the waiting thread sees the end, and starts its next call
    std::vector<DoneCallback> callbacks;
    {
      MutexLock lock(&mutex);
      status = result;
      callbacks.swap(done_callbacks);
    }
    for (const DoneCallback& callback : callbacks) callback(result);
  }
  bool over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return status.has_value(); }

  Group& group;
  AsyncCalls::Call call;  // used by the thread that runs it
  std::atomic<int>& unfinished;
  Mutex mutex;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  std::vector<DoneCallback> done_callbacks ABSL_GUARDED_BY(mutex);
};

std::optional<absl::Status> PendingCall::Test() const {
  if (state_ == nullptr) return absl::OkStatus();
  MutexLock lock(&state_->mutex);
  return state_->status;
}

absl::Status PendingCall::Wait(absl::Duration timeout) const {
  if (state_ == nullptr) return absl::OkStatus();
  MutexLock lock(&state_->mutex);
  const absl::Condition over(
      +[](State* state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) { return state->over(); },
      state_.get());
  if (!state_->mutex.AwaitWithTimeout(over, timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the call is not over after ", absl::FormatDuration(timeout)));
  }
  return *state_->status;
}

void PendingCall::Cancel() const {
  if (state_ == nullptr) return;
  MutexLock lock(&state_->mutex);  // the group lives as long as the call is not over
  if (!state_->over()) state_->group.Abort(absl::CancelledError("it cancelled a call"));
}

void PendingCall::AddDoneCallback(std::function<void(const absl::Status&)> callback) const {
  if (state_ != nullptr) {
    MutexLock lock(&state_->mutex);
    if (!state_->over()) {
      state_->done_callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(*Test());
}

AsyncCalls::AsyncCalls(Group& group) : group_(group) {
  MutexLock lock(&mutex_);
  StartThreadLocked().IgnoreError();  // Start tries again
}

absl::Status AsyncCalls::StartThreadLocked() {
  if (thread_.joinable()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(thread_, StartThread("cohort-async", [this] { Run(); }));
  return absl::OkStatus();
}

AsyncCalls::~AsyncCalls() {
  std::deque<std::shared_ptr<PendingCall::State>> left;
  std::thread ended;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    left.swap(queue_);
    ended = std::move(thread_);
    changed_.Signal();
  }
  if (!left.empty()) group_.Abort(absl::CancelledError("calls that it had started were dropped"));
  if (ended.joinable()) ended.join();
  for (const auto& call : left) {
    call->Finish(absl::CancelledError("dropped before it began"));
  }
}

PendingCall AsyncCalls::Start(Call call) {
  auto state = std::make_shared<PendingCall::State>(group_, std::move(call), unfinished_);
  absl::Status started;
  {
    MutexLock lock(&mutex_);
    started = StartThreadLocked();
    if (started.ok()) {
      queue_.push_back(state);
      changed_.Signal();
    }
  }
  if (!started.ok()) state->Finish(std::move(started));
  return PendingCall(std::move(state));
}

void AsyncCalls::Run() {
  while (true) {
    std::shared_ptr<PendingCall::State> next;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next->Finish(next->call(group_));
  }
}

}  // namespace cohort::client
