// Bytes that belong to users, counted while anyone holds them.
#ifndef COHORT_COORDINATOR_CORE_PAYLOAD_H_
#define COHORT_COORDINATOR_CORE_PAYLOAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace cohort::coordinator {

// Counts the bytes of all payloads made from it. Shared by a shard, its groups and the replies in flight,
// which may be destroyed on other threads; hence atomic.
class ByteLedger {
 public:
  explicit ByteLedger(std::shared_ptr<ByteLedger> parent = nullptr) : parent_(std::move(parent)) {}
  void Add(int64_t bytes) {
    held_.fetch_add(bytes, std::memory_order_relaxed);
    if (parent_ != nullptr) parent_->Add(bytes);
  }
  int64_t held() const { return held_.load(std::memory_order_relaxed); }
  const ByteLedger* parent() const { return parent_.get(); }

 private:
  const std::shared_ptr<ByteLedger> parent_;
  std::atomic<int64_t> held_{0};
};

// An immutable value, shared by reference. Null (default) means "no value", which differs from empty.
class Payload {
 public:
  Payload() = default;
  Payload(std::string bytes, std::shared_ptr<ByteLedger> ledger)
      : counted_(std::make_shared<const Counted>(std::move(bytes), std::move(ledger))) {}

  bool has_value() const { return counted_ != nullptr; }
  const std::string& bytes() const {
    static const std::string* const kEmpty = new std::string;
    return counted_ == nullptr ? *kEmpty : counted_->bytes;
  }
  int64_t size() const { return static_cast<int64_t>(bytes().size()); }
  void reset() { counted_.reset(); }

 private:
  struct Counted {
    Counted(std::string b, std::shared_ptr<ByteLedger> l) : bytes(std::move(b)), ledger(std::move(l)) {
      if (ledger != nullptr) ledger->Add(static_cast<int64_t>(bytes.size()));
    }
    ~Counted() {
      if (ledger != nullptr) ledger->Add(-static_cast<int64_t>(bytes.size()));
    }
    const std::string bytes;
    const std::shared_ptr<ByteLedger> ledger;
  };
  std::shared_ptr<const Counted> counted_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_PAYLOAD_H_
