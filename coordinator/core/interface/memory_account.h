// The account of memory. All memory that the coordinator keeps for its callers is charged here, by
// kind.
//
// One MemoryAccount serves all shards, and Limits::max_bytes_held bounds its sum but kRequests. Each tenant has
// an account of its own (tenant_accounts.h), whose charges count in the whole, too. A shard charges
// a Tally of each account, whose plain numbers reach the account once per step: a call needs no
// lock, and at most a few atomic additions. Values are charged directly (payload.h), because
// replies in flight may free them on other threads. Sizes of structures are estimates, rounded up;
// memory_account_test.cc compares them with malloc's.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_MEMORY_ACCOUNT_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_MEMORY_ACCOUNT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/interface/limits.h"

namespace cohort::coordinator {

enum class MemoryKind : uint8_t {
  kGroups,       // groups without members: specs and labels
  kMembers,      // members, and sessions that were fenced
  kObjects,      // objects between two ranks
  kRounds,       // names, open numbers, values until they are acknowledged
  kKeys,
  kKeyEvents,    // changes of keys, kept for watchers
  kQueues,       // items, handed out or not
  kNamespaces,   // stores of tenants
  kAnswers,      // first answers, kept for repeated calls
  kCalls,        // parked calls, and gRPC's memory for each call in progress
  kOutput,       // bytes written to streams and answers that the reader has not taken yet
  kEvents,       // events of groups, kept for watchers
  kUploads,      // uploads in progress, or complete and not used yet
  kUniqueIds,
  kClosedNames,  // closed groups whose generation is remembered
  kJournal,      // records that wait for the journal, and the answers that wait for them
  kRequests,     // incomplete requests and handshakes: they have limits of their own
};
inline constexpr int kMemoryKindCount = 17;

inline const char* MemoryKindName(MemoryKind kind) {
  constexpr const char* kNames[kMemoryKindCount] = {
      "groups",     "members", "objects", "rounds", "keys",   "key_events", "queues",
      "namespaces", "answers", "calls",   "output", "events", "uploads",    "unique_ids",
      "closed_names", "journal", "requests"};
  return kNames[static_cast<int>(kind)];
}

// The things that have a limit for each tenant, bytes aside.
enum class QuotaKind : uint8_t {
  kGroups,
  kMembers,  // also those that left or were lost, and keep their rank
  kWaiters,  // calls that wait, watches included
  kStreams,  // watches, uploads and downloads
};
inline constexpr int kQuotaKindCount = 4;

// Thread-safe. All shards of a coordinator share the whole account, and one for each tenant.
class MemoryAccount {
 public:
  MemoryAccount() = default;
  // The account of a tenant. Each addition here is also made to `whole`.
  MemoryAccount(std::shared_ptr<MemoryAccount> whole, std::string tenant)
      : whole_(std::move(whole)), tenant_(std::move(tenant)) {}

  void Add(MemoryKind kind, int64_t bytes) {
    AddToThis(kind, bytes);
    if (whole_ != nullptr) whole_->Add(kind, bytes);
  }
  // Charges this account alone: the whole one has the bytes already.
  void AddToThis(MemoryKind kind, int64_t bytes) {
    by_kind_[static_cast<int>(kind)].fetch_add(bytes, std::memory_order_relaxed);
    held_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Charges a value of `bytes` bytes, and `around` bytes of structures that hold it.
  void AddValue(MemoryKind kind, int64_t bytes, int64_t around) {
    Add(kind, bytes + around);
    value_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->value_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Adds `more` things, or removes some if it is negative. The whole account counts groups alone.
  void Count(QuotaKind what, int64_t more) {
    counts_[static_cast<int>(what)].fetch_add(more, std::memory_order_relaxed);
    if (what == QuotaKind::kGroups && whole_ != nullptr) whole_->Count(what, more);
  }
  int64_t count(QuotaKind what) const {
    return counts_[static_cast<int>(what)].load(std::memory_order_relaxed);
  }
  // The account of all tenants together.
  const MemoryAccount& whole() const { return whole_ == nullptr ? *this : *whole_; }
  bool is_whole() const { return whole_ == nullptr; }
  // Empty: this is the whole account.
  const std::string& tenant() const { return tenant_; }
  int64_t held() const { return held_.load(std::memory_order_relaxed); }
  // The bytes of which Limits has a limit. Clients without rights may hold incomplete requests, and
  // take no room from the tenants by that.
  int64_t limited() const { return held() - held(MemoryKind::kRequests); }
  // The bytes of values alone, without structures.
  int64_t value_bytes() const { return value_bytes_.load(std::memory_order_relaxed); }
  int64_t held(MemoryKind kind) const {
    return by_kind_[static_cast<int>(kind)].load(std::memory_order_relaxed);
  }

  // The whole account alone has it.
  std::atomic<int64_t> closed_name_count{0};

 private:
  const std::shared_ptr<MemoryAccount> whole_;
  const std::string tenant_;
  std::array<std::atomic<int64_t>, kQuotaKindCount> counts_{};
  std::atomic<int64_t> held_{0};
  std::atomic<int64_t> value_bytes_{0};
  std::array<std::atomic<int64_t>, kMemoryKindCount> by_kind_{};
};

// How much of the limit a request may use. Calls that wait, and calls with which members continue
// work that they have begun, may use all of it. All other requests leave an eighth free for them.
// Members of a full coordinator can then still receive and pass barriers, which frees memory.
enum class Share { kGoingOn, kNew };

inline int64_t Ceiling(int64_t max_bytes_held, Share share) {
  return share == Share::kNew ? max_bytes_held - max_bytes_held / 8 : max_bytes_held;
}

// The largest number of bytes, of the whole or of a tenant, and how many are held.
struct ByteLimit {
  const char* name;
  int64_t most;
  int64_t held;
  int64_t held_of_kind;
};

// `tenant` is empty for the whole coordinator. Errors: RESOURCE_EXHAUSTED (names the limit, its
// value, the kind and the bytes held).
inline absl::Status CheckBytes(const ByteLimit& limit, const std::string& tenant, MemoryKind kind,
                               int64_t bytes, Share share) {
  if (limit.held + bytes <= Ceiling(limit.most, share)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the limit ", limit.name, " is ", limit.most,
      share == Share::kNew ? ", an eighth of it reserved for calls that wait" : "", ": ",
      tenant.empty() ? "the coordinator" : absl::StrCat("tenant ", tenant), " holds ", limit.held,
      " bytes, ", limit.held_of_kind, " of them for ", MemoryKindName(kind),
      ", and this request needs ", bytes, " more for ", MemoryKindName(kind)));
}

// Whether the account may hold `bytes` more, and a tenant's account no more than its own limit.
// `pending` and `pending_of_kind` were not added yet.
inline absl::Status CheckRoom(const MemoryAccount& account, MemoryKind kind, int64_t bytes,
                              const Limits& limits, Share share, int64_t pending = 0,
                              int64_t pending_of_kind = 0) {
  const MemoryAccount& whole = account.whole();
  absl::Status status = CheckBytes({"max_bytes_held", limits.max_bytes_held, whole.limited() + pending,
                                    whole.held(kind) + pending_of_kind},
                                   "", kind, bytes, share);
  if (!status.ok() || account.is_whole()) return status;
  return CheckBytes({"max_tenant_bytes_held", limits.max_tenant_bytes_held,
                     account.held() + pending, account.held(kind) + pending_of_kind},
                    account.tenant(), kind, bytes, share);
}

// Whether the tenant may have one more of `what`. Errors: RESOURCE_EXHAUSTED (names the limit, its
// value and the tenant).
inline absl::Status CheckCount(const MemoryAccount& account, QuotaKind what, const Limits& limits) {
  struct Quota {
    const char* things;
    const char* limit;
    int64_t most;
  };
  const Quota quotas[kQuotaKindCount] = {
      {" groups", "max_tenant_groups", limits.max_tenant_groups},
      {" members", "max_tenant_members", limits.max_tenant_members},
      {" waiting calls", "max_tenant_waiters", limits.max_tenant_waiters},
      {" streams", "max_tenant_streams", limits.max_tenant_streams},
  };
  const Quota& quota = quotas[static_cast<int>(what)];
  const int64_t count = account.count(what);
  if (count < quota.most || account.is_whole()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("tenant ", account.tenant(), " has ", count,
                                                   quota.things, "; ", quota.limit, " is ",
                                                   quota.most));
}

class Tally;
// The tallies of a shard that have charges since the last publication.
using ChangedTallies = std::vector<Tally*>;

// The part of one shard. Confined to the thread that has the shard; outlives every Charge on it.
class Tally {
 public:
  // `changed` outlives this; null: changes are not listed.
  explicit Tally(std::shared_ptr<MemoryAccount> account, ChangedTallies* changed = nullptr)
      : account_(std::move(account)), changed_tallies_(changed) {}
  ~Tally() {
    if (changed_ != 0 && changed_tallies_ != nullptr) {
      changed_tallies_->erase(std::find(changed_tallies_->begin(), changed_tallies_->end(), this));
    }
    Publish();
  }
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  void Add(MemoryKind kind, int64_t bytes) {
    if (changed_ == 0 && changed_tallies_ != nullptr) changed_tallies_->push_back(this);
    pending_by_kind_[static_cast<int>(kind)] += bytes;
    pending_ += bytes;
    changed_ |= 1u << static_cast<int>(kind);
  }
  // Moves the charges to the account, at the end of each step.
  void Publish() {
    for (; changed_ != 0; changed_ &= changed_ - 1) {
      const int kind = __builtin_ctz(changed_);
      const int64_t bytes = std::exchange(pending_by_kind_[kind], 0);
      if (bytes != 0) account_->Add(static_cast<MemoryKind>(kind), bytes);
    }
    pending_ = 0;
  }

  // The bytes of the account, this step included.
  int64_t held() const { return account_->held() + pending_; }
  // Whether `bytes` more may be held, by the limits of the whole and of the tenant. The charges of
  // this step count.
  bool HasRoom(int64_t bytes, const Limits& limits, Share share) const {
    const int64_t more = pending_ + bytes;
    return account_->whole().limited() + more <= Ceiling(limits.max_bytes_held, share) &&
           (account_->is_whole() || held() + bytes <= Ceiling(limits.max_tenant_bytes_held, share));
  }
  // The same. Errors: RESOURCE_EXHAUSTED (names the limit, its value, the kind and the bytes held).
  absl::Status CheckRoom(MemoryKind kind, int64_t bytes, const Limits& limits, Share share) const {
    if (HasRoom(bytes, limits, share)) return absl::OkStatus();
    return coordinator::CheckRoom(*account_, kind, bytes, limits, share, pending_,
                                  pending_by_kind_[static_cast<int>(kind)]);
  }

  const std::shared_ptr<MemoryAccount>& account() const { return account_; }

 private:
  const std::shared_ptr<MemoryAccount> account_;
  ChangedTallies* const changed_tallies_;
  std::array<int64_t, kMemoryKindCount> pending_by_kind_{};
  int64_t pending_ = 0;
  uint32_t changed_ = 0;  // a bit for each kind
};

// The charge of one container. It is given back when the container is destroyed.
class Charge {
 public:
  Charge() = default;
  Charge(Tally& tally, MemoryKind kind, int64_t bytes = 0) : tally_(&tally), kind_(kind) {
    Add(bytes);
  }
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept {
    if (this == &other) return *this;
    Set(0);
    tally_ = std::exchange(other.tally_, nullptr);
    kind_ = other.kind_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Charge() { Set(0); }

  // Without a tally (a default Charge) nothing is charged.
  void Add(int64_t bytes) {
    if (tally_ == nullptr || bytes == 0) return;
    tally_->Add(kind_, bytes);
    bytes_ += bytes;
  }
  void Set(int64_t bytes) { Add(bytes - bytes_); }
  int64_t bytes() const { return bytes_; }

 private:
  Tally* tally_ = nullptr;
  MemoryKind kind_ = MemoryKind::kGroups;
  int64_t bytes_ = 0;
};

// Like Charge, but directly on the account, for objects that any thread may hold.
class SharedCharge {
 public:
  SharedCharge(MemoryAccount& account, MemoryKind kind, int64_t bytes = 0)
      : account_(&account), kind_(kind) {
    Set(bytes);
  }
  ~SharedCharge() { Set(0); }
  SharedCharge(const SharedCharge&) = delete;
  SharedCharge& operator=(const SharedCharge&) = delete;

  void Set(int64_t bytes) {
    if (bytes == bytes_) return;
    account_->Add(kind_, bytes - bytes_);
    bytes_ = bytes;
  }
  // Charges another account from now on, which outlives this.
  void MoveTo(MemoryAccount& account) {
    const int64_t bytes = bytes_;
    Set(0);
    account_ = &account;
    Set(bytes);
  }
  int64_t bytes() const { return bytes_; }

 private:
  MemoryAccount* account_;
  const MemoryKind kind_;
  int64_t bytes_ = 0;
};

// --- Estimates. A block of malloc costs 8 bytes and is rounded up to 16.

inline int64_t BlockCost(size_t bytes) { return static_cast<int64_t>((bytes + 8 + 15) & ~size_t{15}); }
// The memory of a string beyond its own object. A short string needs none.
inline int64_t CostOf(const std::string& text) {
  return text.size() < 16 ? 0 : BlockCost(text.size() + 1);
}
inline int64_t CostOf(const std::vector<std::string>& texts) {
  if (texts.empty()) return 0;
  int64_t cost = BlockCost(texts.size() * sizeof(std::string));
  for (const std::string& text : texts) cost += CostOf(text);
  return cost;
}
// A node of std::map, std::set or std::list that holds a T.
template <typename T>
constexpr int64_t NodeCost() {
  return static_cast<int64_t>((sizeof(T) + 32 + 8 + 15) & ~size_t{15});
}
// A slot of absl::flat_hash_map or absl::btree for a T, if the table is half full.
template <typename T>
constexpr int64_t SlotCost() {
  return static_cast<int64_t>(2 * sizeof(T) + 2);
}
inline int64_t CostOf(const std::map<std::string, std::string>& texts) {
  int64_t cost = 0;
  for (const auto& [key, value] : texts) {
    cost += NodeCost<std::pair<std::string, std::string>>() + CostOf(key) + CostOf(value);
  }
  return cost;
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_MEMORY_ACCOUNT_H_
