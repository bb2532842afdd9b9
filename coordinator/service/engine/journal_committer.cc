#include "coordinator/service/engine/journal_committer.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/threads/thread.h"

namespace cohort::coordinator {

namespace {

// An estimate: vectors may hold twice as many, and a record has its name among its fields again.
int64_t CostOf(const std::vector<Record>& records, const Answers& answers) {
  int64_t cost =
      static_cast<int64_t>(2 * (records.size() * sizeof(Record) + answers.size() * sizeof(Answer)));
  for (const Record& record : records) {
    cost += coordinator::CostOf(record.key.tenant) + coordinator::CostOf(record.key.group) +
            2 * coordinator::CostOf(record.id);
  }
  return cost;
}

}  // namespace

JournalCommitter::JournalCommitter(Journal& journal, MemoryAccount& account,
                                   EngineObserver* observer, std::function<void(Answers)> deliver,
                                   std::function<void(const absl::Status&)> on_failure)
    : journal_(journal),
      account_(account),
      observer_(observer),
      deliver_(std::move(deliver)),
      on_failure_(std::move(on_failure)) {
  absl::StatusOr<std::thread> thread = StartThread("cohort-commit", [this] { Run(); });
  status_ = thread.status();
  if (thread.ok()) thread_ = *std::move(thread);
}

JournalCommitter::~JournalCommitter() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.Signal();
  if (thread_.joinable()) thread_.join();
}

uint64_t JournalCommitter::Enqueue(std::vector<Record> records, Answers answers) {
  const int64_t cost = CostOf(records, answers);
  account_.Add(MemoryKind::kJournal, cost);
  MutexLock lock(&mutex_);
  queue_.charged += cost;
  const bool was_empty = queue_.records.empty() && queue_.answers.empty();
  queue_.records.insert(queue_.records.end(), std::make_move_iterator(records.begin()),
                        std::make_move_iterator(records.end()));
  queue_.answers.insert(queue_.answers.end(), std::make_move_iterator(answers.begin()),
                        std::make_move_iterator(answers.end()));
  ++queue_.last;
  if (was_empty) changed_.Signal();
  return queue_.last;
}

void JournalCommitter::Run() {
  for (;;) {
    Batch batch;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && queue_.records.empty() && queue_.answers.empty()) {
        changed_.Wait(&mutex_);
      }
      if (queue_.records.empty() && queue_.answers.empty()) return;  // stopping
      batch = std::move(queue_);
      queue_ = Batch{};
      queue_.last = batch.last;
    }
    Commit(std::move(batch));
  }
}

void JournalCommitter::Commit(Batch batch) {
  if (failure_.ok() && !batch.records.empty()) {
    const Instant start = Clock::Steady().Now();
    failure_ = journal_.Append(batch.records);
    if (observer_ != nullptr) {
      observer_->OnAppend(Clock::Steady().Now() - start, batch.records.size());
    }
    if (!failure_.ok()) {
      failed_.store(true, std::memory_order_release);
      on_failure_(failure_);
    }
  }
  if (failure_.ok()) {
    durable_.store(batch.last, std::memory_order_release);
  } else {
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("the journal could not be written: ", failure_.message()));
    for (Answer& answer : batch.answers) {
      answer.reply = Reply{answer.reply.id, status, nullptr, EmptyReply{}};
    }
  }
  deliver_(std::move(batch.answers));
  account_.Add(MemoryKind::kJournal, -batch.charged);
}

}  // namespace cohort::coordinator
