// Limits what clients make the worker keep, such as descriptors or bytes: in all, for each session,
// and for each identity and tenant (payer_counts.h).
//
//   auto quota = std::make_shared<Quota>(kDescriptors, limits);
//   auto share = std::make_shared<QuotaShare>(quota);  // a session's
//   COHORT_ASSIGN_OR_RETURN(HeldQuota held, HeldQuota::Take(share, 2, "a session"));
//
// `held` gives them back when it goes, which may be after its session.
#ifndef COHORT_WORKER_DAEMON_LIMITS_QUOTA_H_
#define COHORT_WORKER_DAEMON_LIMITS_QUOTA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/threads/mutex.h"
#include "worker/daemon/limits/payer_counts.h"

namespace cohort::worker {

// The unit and the flags of a quota, as errors name them.
struct QuotaUnit {
  const char* name;
  const char* flag;
  const char* session_flag;
};
constexpr QuotaUnit kDescriptors = {"file descriptors", "--max-descriptors",
                                    "--max-descriptors-per-session"};
constexpr QuotaUnit kTensorBytes = {"bytes", "--max-tensor-bytes",
                                    "--max-tensor-bytes-per-session"};

// 0: no limit.
struct QuotaLimits {
  int64_t max_in_all = 0;
  int64_t max_per_session = 0;
};

// Thread-safe.
class Quota {
 public:
  Quota(QuotaUnit unit, QuotaLimits limits) : unit_(unit), limits_(limits) {}

  const QuotaLimits& limits() const { return limits_; }

 private:
  friend class HeldQuota;
  friend class QuotaShare;
  const QuotaUnit unit_;
  const QuotaLimits limits_;
  Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  PayerCounts by_payer_ ABSL_GUARDED_BY(mutex_);
};

// The part that one session holds.
class QuotaShare {
 public:
  // `owner` begins the text of errors: "this session holds". `payer` is the session's
  // client.
  explicit QuotaShare(std::shared_ptr<Quota> quota, absl::string_view owner = "this session holds",
                      Payer payer = {})
      : quota_(std::move(quota)), owner_(owner), payer_(std::move(payer)) {}

 private:
  friend class HeldQuota;
  const std::shared_ptr<Quota> quota_;
  const std::string owner_;
  const Payer payer_;
  int64_t held_ = 0;  // guarded by the quota's mutex
};

// Movable, before it is shared. Resize, Add and Waive are thread-safe.
class HeldQuota {
 public:
  // `what` names the user in errors: "a session". Errors: RESOURCE_EXHAUSTED, naming the flag and
  // its value.
  static absl::StatusOr<HeldQuota> Take(std::shared_ptr<QuotaShare> share, int64_t count,
                                        absl::string_view what);
  // Changes the number to `count`; after an error it is unchanged. Errors: those of Take.
  absl::Status Resize(int64_t count, absl::string_view what);
  // Changes the number by `more`. The same.
  absl::Status Add(int64_t more, absl::string_view what);
  // Gives all back. From now on nothing is counted, and there are no errors.
  void Waive();
  // Holds nothing of `share`'s quota yet.
  explicit HeldQuota(std::shared_ptr<QuotaShare> share) : share_(std::move(share)) {}
  HeldQuota() = default;
  HeldQuota(HeldQuota&& other) noexcept
      : share_(std::move(other.share_)),
        count_(std::exchange(other.count_, 0)),
        waived_(other.waived_) {}
  HeldQuota& operator=(HeldQuota&& other) noexcept {
    std::swap(share_, other.share_);
    std::swap(count_, other.count_);
    std::swap(waived_, other.waived_);
    return *this;
  }
  ~HeldQuota() { Waive(); }

 private:
  // The new number is `base` + `taken`; errors name `taken`.
  absl::Status Change(int64_t base, int64_t taken, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(share_->quota_->mutex_);
  std::shared_ptr<QuotaShare> share_;
  // Changed under the quota's mutex:
  int64_t count_ = 0;
  bool waived_ = false;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_LIMITS_QUOTA_H_
