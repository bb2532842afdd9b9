// The first answers of a group's calls. A repeated call gets the same answer instead of acting
// twice.
#ifndef COHORT_COORDINATOR_CORE_IDEMPOTENCY_FIRST_ANSWERS_H_
#define COHORT_COORDINATOR_CORE_IDEMPOTENCY_FIRST_ANSWERS_H_

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
#include "coordinator/core/idempotency/request_fingerprint.h"
#include "coordinator/core/interface/limits.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/runtime/step.h"

namespace cohort::coordinator {

// Answers by operation id. Each is kept with the fingerprint of its request
// (request_fingerprint.h); a call that has the id with another request is refused.
//
// The window is bounded by number (Limits::max_operations_kept) and by age. At the bound, the
// client with the most answers loses its oldest one, so that a fast client does not push out the
// answers of a slow one. The first half of an id stands for the client, as this project's library
// makes ids. If clients make ids at random, the window drops the oldest answer of all.
//
// The window keeps only answers of a few numbers. The class that holds a value repeats the answers
// that carry the value. Confined to one thread.
class FirstAnswers {
 public:
  // A repeat that arrives later than this acts again. Remember drops the answers that are older.
  static constexpr absl::Duration kMaxAge = absl::Minutes(10);

  // `tally` is charged for the kept answers; null: they are not charged.
  explicit FirstAnswers(Tally* tally = nullptr) {
    if (tally != nullptr) charge_ = Charge(*tally, MemoryKind::kAnswers);
  }
  FirstAnswers(const FirstAnswers&) = delete;
  FirstAnswers& operator=(const FirstAnswers&) = delete;

  // The first answer to the call with this id; null: it is not known. Valid until the next method
  // call on this window.
  const ReplyBody* Find(const Id128& id) const;

  // Returns OK if the id is unknown or belongs to this request. `R` is the type of the answer to
  // `call`. Errors: INVALID_ARGUMENT (the id was used for another request; names both).
  template <typename R, typename C>
  absl::Status CheckSame(const Id128& id, uint64_t fingerprint, const C& call) const {
    const ReplyBody* first = Find(id);
    if (first == nullptr) return absl::OkStatus();
    const uint64_t known = by_id_.find(id)->second->record.fingerprint;
    if (std::holds_alternative<R>(*first) && (known == 0 || known == fingerprint))
      return absl::OkStatus();
    return UsedBefore(id, DescribeRequest(call));
  }
  // Answers a repeated call with its first answer, or with the error of CheckSame. Returns false if
  // the id is unknown: the call is not answered.
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
  // The error for an id that was used for the kept operation, or for `first`, and now for `again`.
  absl::Status UsedBefore(const Id128& id, const std::string& again) const;
  static absl::Status UsedBefore(const Id128& id, const std::string& first,
                                 const std::string& again);

  // Keeps `answer` and writes its record. Does nothing for an empty id, an id that has an answer,
  // and an answer that is not small. A put that failed its compare is kept without a record: it
  // changed nothing that could outlive the process, but a late duplicate of it must not succeed
  // after the caller got an error for it.
  void Remember(Step& step, const GroupKey& key, const Id128& id, uint64_t fingerprint,
                ReplyBody answer, const Limits& limits);

  // Drops the answers older than kMaxAge.
  void DropOld(Step& step, const GroupKey& key);

  // Unknown ids are fine.
  void Forget(Step& step, const GroupKey& key, const Id128& id);

  // Takes a kept answer of an earlier boot; its age counts from `now`. Skips rows of an unknown
  // kind.
  void Restore(const OperationRecord& record, Instant now);

  size_t size() const { return by_id_.size(); }

 private:
  struct Entry {
    OperationRecord record;
    Instant at;
    bool recorded = true;
    // The whole answer, if the record has no room for it; else null.
    std::unique_ptr<const ReplyBody> whole;
  };
  using Entries = std::list<Entry>;
  // Orders clients: the client with the most answers is last, and of those the one with the oldest.
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
  // Called before and after every change of a client's entries.
  void Unrank(uint64_t client);
  void Rerank(uint64_t client);

  absl::flat_hash_map<uint64_t, Entries> clients_;  // not empty, oldest first
  absl::flat_hash_map<Id128, Entries::iterator> by_id_;
  absl::btree_set<Rank> ranks_;
  absl::btree_set<std::pair<int64_t, uint64_t>> by_age_;  // number of a client's oldest, client
  int64_t last_number_ = 0;
  Charge charge_;
  // The result of Find. Entries keep the few numbers of an answer instead of the whole variant,
  // which is ten times as large.
  mutable ReplyBody found_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_IDEMPOTENCY_FIRST_ANSWERS_H_
