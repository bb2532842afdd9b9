// Limits the descriptors that clients make the worker keep: in all, for each session, and for each
// identity (identity_counts.h).
//
//   auto quota = std::make_shared<DescriptorQuota>(limits);
//   auto share = std::make_shared<DescriptorShare>(quota);  // a session's
//   COHORT_ASSIGN_OR_RETURN(HeldDescriptors held, HeldDescriptors::Take(share, 2, "a session"));
//
// `held` gives them back when it goes, which may be after its session.
#ifndef COHORT_WORKER_DAEMON_LIMITS_DESCRIPTOR_QUOTA_H_
#define COHORT_WORKER_DAEMON_LIMITS_DESCRIPTOR_QUOTA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/threads/mutex.h"
#include "worker/daemon/limits/identity_counts.h"

namespace cohort::worker {

// 0: no limit.
struct DescriptorLimits {
  int max_in_all = 0;
  int max_per_session = 0;
};

// Thread-safe.
class DescriptorQuota {
 public:
  explicit DescriptorQuota(DescriptorLimits limits) : limits_(limits) {}

 private:
  friend class HeldDescriptors;
  friend class DescriptorShare;
  const DescriptorLimits limits_;
  Mutex mutex_;
  int held_ ABSL_GUARDED_BY(mutex_) = 0;
  IdentityCounts by_identity_ ABSL_GUARDED_BY(mutex_);
};

// The descriptors of one session.
class DescriptorShare {
 public:
  // `owner` begins the text of errors: "this session holds". `identity` is that of the session's
  // client; empty: the worker has no access policy.
  explicit DescriptorShare(std::shared_ptr<DescriptorQuota> quota,
                           absl::string_view owner = "this session holds",
                           std::string identity = "")
      : quota_(std::move(quota)), owner_(owner), identity_(std::move(identity)) {}

 private:
  friend class HeldDescriptors;
  const std::shared_ptr<DescriptorQuota> quota_;
  const std::string owner_;
  const std::string identity_;
  int held_ = 0;  // guarded by the quota's mutex
};

// Movable. Resize is thread-safe.
class HeldDescriptors {
 public:
  // `what` names the user of the descriptors in errors: "a session". Errors: RESOURCE_EXHAUSTED,
  // naming the flag and its value.
  static absl::StatusOr<HeldDescriptors> Take(std::shared_ptr<DescriptorShare> share, int count,
                                              absl::string_view what);
  // Changes the number to `count`; after an error it is unchanged. Errors: those of Take.
  absl::Status Resize(int count, absl::string_view what);
  HeldDescriptors() = default;
  HeldDescriptors(HeldDescriptors&& other) noexcept
      : share_(std::move(other.share_)), count_(std::exchange(other.count_, 0)) {}
  HeldDescriptors& operator=(HeldDescriptors&& other) noexcept {
    std::swap(share_, other.share_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~HeldDescriptors();

 private:
  explicit HeldDescriptors(std::shared_ptr<DescriptorShare> share) : share_(std::move(share)) {}
  std::shared_ptr<DescriptorShare> share_;
  int count_ = 0;  // changed under the quota's mutex
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_LIMITS_DESCRIPTOR_QUOTA_H_
