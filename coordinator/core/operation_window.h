// The first answers of a group, kept so that a repeated call gets the same one instead of acting
// twice.
#ifndef COHORT_COORDINATOR_CORE_OPERATION_WINDOW_H_
#define COHORT_COORDINATOR_CORE_OPERATION_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/id128.h"
#include "coordinator/core/account.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/operation_request.h"
#include "coordinator/core/record.h"
#include "coordinator/core/reply.h"
#include "coordinator/core/step.h"
#include "coordinator/core/types.h"

namespace cohort::coordinator {

// What an operation id stands for: an answer is kept with the fingerprint of its request
// (operation_request.h), and a call that brings the id with another request is refused.
//
// Bounded by number (Limits::max_operations_kept) and by age. At the bound, whoever has most gives
// up its oldest: what one client has in flight is not pushed out by the haste of others. The first
// half of an id stands for a client, as this project's library makes them; others may make every id
// at random, and lose the oldest of all.
// Only answers made of a few numbers
// are kept; an answer that carries values is repeated by whoever holds the values. Confined to one
// thread.
class OperationWindow {
 public:
  // A repeat that comes later than this acts anew. Ages are looked at when an answer is remembered.
  static constexpr absl::Duration kMaxAge = absl::Minutes(10);

  // `tally` is charged for what is kept; null: nobody counts.
  explicit OperationWindow(Tally* tally = nullptr) {
    if (tally != nullptr) charge_ = Charge(*tally, MemoryKind::kAnswers);
  }
  OperationWindow(const OperationWindow&) = delete;
  OperationWindow& operator=(const OperationWindow&) = delete;

  // The first answer to the call with this id; null if it is not known. Valid until the next call
  // of this window.
  const ReplyBody* Find(const Id128& id) const;

  // INVALID_ARGUMENT, which names both requests, when the id was used for another one; else OK,
  // also when the id is not known. `R` is the answer that belongs to `call`.
  template <typename R, typename C>
  absl::Status CheckSame(const Id128& id, uint64_t fingerprint, const C& call) const {
    const ReplyBody* first = Find(id);
    if (first == nullptr) return absl::OkStatus();
    const uint64_t known = by_id_.find(id)->second->record.fingerprint;
    if (std::holds_alternative<R>(*first) && (known == 0 || known == fingerprint))
      return absl::OkStatus();
    return UsedBefore(id, DescribeRequest(call));
  }
  // Whether the call was answered: by its first answer, or by the error of CheckSame.
  template <typename R, typename C>
  bool Repeated(Step& step, CallId call_id, const Id128& id, uint64_t fingerprint,
                const C& call) const {
    const ReplyBody* first = Find(id);
    if (first == nullptr) return false;
    if (absl::Status same = CheckSame<R>(id, fingerprint, call); !same.ok()) {
      step.Fail(call_id, std::move(same));
    } else {
      step.Answer(call_id, *first);
    }
    return true;
  }
  // The error of an id that was used for the kept operation, or for `first`, and comes again for
  // `again`.
  absl::Status UsedBefore(const Id128& id, const std::string& again) const;
  static absl::Status UsedBefore(const Id128& id, const std::string& first,
                                 const std::string& again);

  // Keeps `answer` and writes its record. Does nothing for an empty id, an id that has an answer,
  // and an answer that is not small. A put that failed its compare is kept without a record: it
  // changed nothing that could outlive the process, but a late duplicate of it must not succeed
  // after the caller was told that it failed.
  void Remember(Step& step, const GroupKey& key, const Id128& id, uint64_t fingerprint,
                ReplyBody answer, const Limits& limits);

  // Drops what is older than kMaxAge.
  void DropOld(Step& step, const GroupKey& key);

  // Unknown ids are fine.
  void Forget(Step& step, const GroupKey& key, const Id128& id);

  // Takes a kept answer of an earlier life; its age counts from `now`. Rows of an unknown kind are
  // skipped.
  void Restore(const OperationRecord& record, Instant now);

  size_t size() const { return by_id_.size(); }

 private:
  struct Entry {
    OperationRecord record;
    Instant at;
    bool recorded = true;
    // What the record has no room for; null when it says everything.
    std::unique_ptr<const ReplyBody> whole;
  };
  using Entries = std::list<Entry>;
  // Who has most, and among them the one with the oldest, comes last.
  struct Rank {
    size_t count = 0;
    int64_t oldest = 0;
    uint64_t client = 0;
    bool operator<(const Rank& other) const {
      return std::tie(count, other.oldest, client) < std::tie(other.count, oldest, other.client);
    }
  };

  static int64_t EntryCost(bool whole);
  void Insert(Entry entry);
  void Drop(Step& step, const GroupKey& key, Entries::iterator entry);
  // Around every change of a client's entries.
  void Unrank(uint64_t client);
  void Rerank(uint64_t client);

  absl::flat_hash_map<uint64_t, Entries> clients_;  // each with its oldest first; none is empty
  absl::flat_hash_map<Id128, Entries::iterator> by_id_;
  absl::btree_set<Rank> ranks_;
  absl::btree_set<std::pair<int64_t, uint64_t>> by_age_;  // number of a client's oldest, client
  int64_t last_number_ = 0;
  Charge charge_;
  // Entries keep the few numbers of an answer, not the whole variant, which is ten times as large.
  mutable ReplyBody found_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_OPERATION_WINDOW_H_
