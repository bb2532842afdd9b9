// Bytes of users' values, counted as long as they are held.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_PAYLOAD_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_PAYLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/core/interface/memory_account.h"

namespace cohort::coordinator {

// Counts the bytes of all values of one group or store, and charges them to the account. The group
// shares it with replies in flight, which other threads may destroy, so it is atomic.
class ByteLedger {
 public:
  // The memory of a value beside its bytes.
  static constexpr int64_t kValueCost = 96;

  explicit ByteLedger(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  void Take(MemoryKind kind, int64_t bytes) {
    held_.fetch_add(bytes, std::memory_order_relaxed);
    account_->AddValue(kind, bytes, kValueCost);
  }
  void Give(MemoryKind kind, int64_t bytes) {
    held_.fetch_sub(bytes, std::memory_order_relaxed);
    account_->AddValue(kind, -bytes, -kValueCost);
  }
  void Move(MemoryKind from, MemoryKind to, int64_t bytes) {
    account_->Add(from, -bytes - kValueCost);
    account_->Add(to, bytes + kValueCost);
  }
  // Bytes of values alone.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<MemoryAccount> account_;
  std::atomic<int64_t> held_{0};
};

// An immutable value, shared by reference. A default Payload has no value, which differs from an
// empty one.
class Payload {
 public:
  Payload() = default;
  // Without a ledger, the value is not counted.
  Payload(std::string bytes, std::shared_ptr<ByteLedger> ledger,
          MemoryKind kind = MemoryKind::kObjects)
      : counted_(std::make_shared<const Counted>(std::move(bytes), std::move(ledger), kind)) {}

  bool has_value() const { return counted_ != nullptr; }
  const std::string& bytes() const {
    static const std::string* const kEmpty = new std::string;
    return counted_ == nullptr ? *kEmpty : counted_->bytes;
  }
  int64_t size() const { return static_cast<int64_t>(bytes().size()); }
  // As in zlib. It is computed once for all that share the value.
  uint32_t crc32() const;
  // The caller has computed it.
  void NoteCrc32(uint32_t crc32) const {
    if (counted_ != nullptr) counted_->crc32.store(crc32, std::memory_order_relaxed);
  }
  void reset() { counted_.reset(); }
  // Charges the value as `kind` from now on, such as an upload that has become an object. Only the
  // shard's thread calls it.
  void Become(MemoryKind kind) const {
    if (counted_ == nullptr || counted_->ledger == nullptr || counted_->kind == kind) return;
    counted_->ledger->Move(counted_->kind, kind, size());
    counted_->kind = kind;
  }

 private:
  struct Counted {
    Counted(std::string b, std::shared_ptr<ByteLedger> l, MemoryKind k)
        : bytes(std::move(b)), ledger(std::move(l)), kind(k) {
      if (ledger != nullptr) ledger->Take(kind, static_cast<int64_t>(bytes.size()));
    }
    ~Counted() {
      if (ledger != nullptr) ledger->Give(kind, static_cast<int64_t>(bytes.size()));
    }
    const std::string bytes;
    const std::shared_ptr<ByteLedger> ledger;
    mutable MemoryKind kind;
    mutable std::atomic<int64_t> crc32{-1};  // -1: unknown
  };
  std::shared_ptr<const Counted> counted_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_PAYLOAD_H_
