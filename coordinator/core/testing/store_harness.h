// A store with its surroundings, driven by hand: tests set the time and read the results of each
// input.
#ifndef COHORT_COORDINATOR_CORE_TESTING_STORE_HARNESS_H_
#define COHORT_COORDINATOR_CORE_TESTING_STORE_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/id128.h"
#include "coordinator/core/idempotency/first_answers.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/effects.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/runtime/shard.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/store/store.h"

namespace cohort::coordinator {

class StoreHarness {
 public:
  // Rows as a journal would hold them, by (kind, id).
  using Rows = std::map<std::pair<RecordKind, std::string>, RecordValue>;

  explicit StoreHarness(int64_t boot = 1, Rows rows = {}) : rows_(std::move(rows)) {
    shard_.boot = boot;
    ledger_ = std::make_shared<ByteLedger>(tally_->account());
    last_number_ = shard_.FirstNumber();
    store_ = std::make_unique<Store>(shard_, Key(), tally_, operations_, ledger_, &last_number_);
    for (const auto& [name, value] : rows_) {
      if (const auto* key = std::get_if<KeyRecord>(&value)) store_->Restore(now_, *key);
      if (const auto* item = std::get_if<QueueItemRecord>(&value)) store_->Restore(now_, *item);
      if (const auto* first = std::get_if<OperationRecord>(&value)) {
        operations_.Restore(*first, now_);
      }
    }
  }

  static GroupKey Key() { return GroupKey{"tenant", "group"}; }
  static Id128 Operation(uint64_t n) { return Id128{7, n}; }
  static Id128 Session(uint64_t n) { return Id128{9, n}; }

  // A call without an operation id or a session, unless the next one was given them.
  StoreHarness& With(Id128 operation) {
    caller_.operation_id = operation;
    return *this;
  }
  StoreHarness& In(Id128 session) {
    caller_.session = session;
    return *this;
  }
  template <typename C>
  CallId Begin(C call, absl::Duration wait = absl::ZeroDuration()) {
    const CallId id = ++last_call_;
    const Caller caller = std::exchange(caller_, Caller{});
    Do([&](Step& step) { store_->Handle(step, id, caller, wait, std::move(call)); });
    return id;
  }

  // Any input: its replies are kept by call, its records written to the rows.
  template <typename F>
  void Do(F input) {
    Effects effects;
    Step step(now_, effects);
    input(step);
    for (Record& record : effects.records) {
      ++record_count_;
      const auto name = std::make_pair(record.kind, record.id);
      if (record.value.has_value()) {
        rows_[name] = *std::move(record.value);
      } else {
        rows_.erase(name);
      }
    }
    for (Reply& reply : effects.replies) {
      ++reply_count_[reply.id];
      replies_[reply.id] = std::move(reply);
    }
  }
  void Advance(absl::Duration by) {
    now_ += by;
    Do([&](Step& step) {
      shard_.timers.Run(step);
      shard_.waits.Run(step);
    });
  }
  // Lets time pass without running timers.
  void Sleep(absl::Duration by) { now_ += by; }
  void Cancel(CallId id) {
    Do([&](Step& step) { shard_.waits.Cancel(step, id); });
  }

  bool Answered(CallId id) const { return replies_.count(id) != 0; }
  int AnswerCount(CallId id) const {
    auto it = reply_count_.find(id);
    return it == reply_count_.end() ? 0 : it->second;
  }
  absl::Status StatusOf(CallId id) const {
    return Answered(id) ? replies_.at(id).status : absl::UnknownError("no answer yet");
  }
  // Returns a default R if there is no reply, so that a test fails and does not crash.
  template <typename R>
  R Take(CallId id) {
    auto it = replies_.find(id);
    if (it == replies_.end()) return R{};
    const R* body = std::get_if<R>(&it->second.body);
    const R taken = body == nullptr ? R{} : *body;
    replies_.erase(it);
    return taken;
  }
  template <typename R, typename C>
  R Ask(C call) {
    return Take<R>(Begin(std::move(call)));
  }
  template <typename C>
  absl::Status Try(C call) {
    return StatusOf(Begin(std::move(call)));
  }

  // Shorthands.
  int64_t Put(const std::string& key, const std::string& value) {
    return Ask<PutReply>(PutCall{key, value}).revision;
  }
  std::string Value(const std::string& key) {
    const auto reply = Ask<GetReply>(GetCall{{key}});
    return reply.values.empty() ? "(none)" : reply.values[0].value.bytes();
  }
  int64_t Push(const std::string& queue, const std::string& value) {
    return Ask<QueuePushReply>(QueuePushCall{queue, value}).sequence;
  }
  void Acknowledge(int64_t receipt) {
    Caller caller;
    caller.acknowledged = {receipt};
    Do([&](Step& step) { store_->Settle(step, caller); });
  }
  void Abandon(std::vector<Id128> operations) {
    Caller caller;
    caller.abandoned = std::move(operations);
    Do([&](Step& step) { store_->Settle(step, caller); });
  }

  size_t RowCount(RecordKind kind) const {
    size_t count = 0;
    for (const auto& [name, value] : rows_) count += name.first == kind;
    return count;
  }

  Store& store() { return *store_; }
  Shard& shard() { return shard_; }
  Limits& limits() { return shard_.limits; }
  FirstAnswers& operations() { return operations_; }
  ByteLedger& ledger() { return *ledger_; }
  const Tally& tally() const { return *tally_; }
  const Rows& rows() const { return rows_; }
  int record_count() const { return record_count_; }
  Instant now() const { return now_; }

 private:
  Instant now_ = absl::UnixEpoch() + absl::Hours(1);
  Shard shard_{std::make_shared<TenantAccounts>(std::make_shared<MemoryAccount>())};
  const std::shared_ptr<Tally> tally_ = shard_.tallies.Of("");
  std::shared_ptr<ByteLedger> ledger_;
  FirstAnswers operations_{tally_.get()};
  int64_t last_number_ = 0;
  Rows rows_;
  Caller caller_;
  CallId last_call_ = 0;
  int record_count_ = 0;
  std::map<CallId, Reply> replies_;
  std::map<CallId, int> reply_count_;
  std::unique_ptr<Store> store_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_STORE_HARNESS_H_
