#include "base/access/policy_watch.h"

#include <utility>

#include "absl/time/time.h"

namespace cohort {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

}  // namespace

PolicyWatch::PolicyWatch(std::shared_ptr<AccessPolicy> policy,
                         std::function<void(bool by_files)> on_change)
    : policy_(std::move(policy)),
      on_change_(std::move(on_change)),
      version_(policy_->version_.load()),
      loop_("policy", kBetweenLooks, [this] { Look(); }) {
  // Without a thread, calls read the files.
  if (policy_->path_.empty() || !loop_.Start().ok()) return;
  policy_->watched_ = true;
  loop_.SetTicking(true);
}

void PolicyWatch::Look() {
  policy_->ReadAgain();
  const int64_t version = policy_->version_.load(std::memory_order_acquire);
  const bool by_files = std::exchange(version_, version) != version;
  if (by_files || policy_->has_issuers()) on_change_(by_files);
}

}  // namespace cohort
