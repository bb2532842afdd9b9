#include "worker/daemon/limits/idle_stream_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kShortestTick = absl::Milliseconds(10);
constexpr absl::Duration kLongestTick = absl::Seconds(1);

}  // namespace

IdleStreamWatch::IdleStreamWatch(absl::Duration idle_limit, int max_unnamed)
    : idle_limit_(idle_limit),
      max_unnamed_(max_unnamed),
      loop_("cohort-streams", std::clamp(idle_limit / 4, kShortestTick, kLongestTick),
            [this] { OnTick(); }) {}

absl::Status IdleStreamWatch::Add(const std::shared_ptr<Stream>& stream, const Payer& payer) {
  COHORT_RETURN_IF_ERROR(loop_.Start());
  MutexLock lock(&mutex_);
  if (const auto full = unnamed_by_payer_.WhoIsFull(payer, 1, max_unnamed_); full.has_value()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        full->has, " streams of ", full->who, " have not sent their first part, as many as one ",
        full->kind, " may have of ", max_unnamed_, " (--max-calls)"));
  }
  if (unnamed_ >= max_unnamed_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(unnamed_,
                     " streams have not sent their first part, as many as the worker "
                     "takes (--max-calls ",
                     max_unnamed_, ")"));
  }
  streams_[stream.get()] = {stream, false, payer};
  ++unnamed_;
  unnamed_by_payer_.Add(payer, 1);
  loop_.SetTicking(true);
  return absl::OkStatus();
}

absl::Status IdleStreamWatch::AddNamed(const std::shared_ptr<Stream>& stream) {
  COHORT_RETURN_IF_ERROR(loop_.Start());
  MutexLock lock(&mutex_);
  streams_[stream.get()] = {stream, true};
  loop_.SetTicking(true);
  return absl::OkStatus();
}

void IdleStreamWatch::Name(Stream* stream) {
  MutexLock lock(&mutex_);
  const auto found = streams_.find(stream);
  if (found != streams_.end()) SetNamed(found->second);
}

void IdleStreamWatch::SetNamed(Entry& entry) {
  if (std::exchange(entry.named, true)) return;
  --unnamed_;
  unnamed_by_payer_.Add(std::exchange(entry.payer, {}), -1);
}

void IdleStreamWatch::Remove(Stream* stream) {
  MutexLock lock(&mutex_);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  SetNamed(found->second);
  streams_.erase(found);
  if (streams_.empty()) loop_.SetTicking(false);
}

void IdleStreamWatch::OnTick() {
  const int64_t begin = Stream::Now() - absl::ToInt64Nanoseconds(idle_limit_);
  std::vector<std::shared_ptr<Stream>> idle;  // ended and freed without the lock
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, entry] : streams_) {
      std::shared_ptr<Stream> stream = entry.stream.lock();
      if (stream != nullptr && stream->last_.load(std::memory_order_relaxed) < begin) {
        idle.push_back(std::move(stream));
      }
    }
  }
  for (const std::shared_ptr<Stream>& stream : idle) stream->OnIdle(idle_limit_);
}

}  // namespace cohort::worker
