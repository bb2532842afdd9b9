// The thread that reads an access policy and the keys of its issuers again.
#ifndef COHORT_BASE_ACCESS_POLICY_WATCH_H_
#define COHORT_BASE_ACCESS_POLICY_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "base/access/access_policy.h"
#include "base/threads/event_loop.h"

namespace cohort {

// Looks at the files once a second, so that no call waits for them. A policy has one at most.
class PolicyWatch {
 public:
  // `on_change` runs on that thread when the rights of a client may have changed: after a change of
  // the files, and at each look if the policy trusts issuers, whose tokens end. In
  // the second case `by_files` is false: only clients with signed tokens may have lost rights.
  PolicyWatch(std::shared_ptr<AccessPolicy> policy, std::function<void(bool by_files)> on_change);
  ~PolicyWatch() { policy_->watched_ = false; }

 private:
  void Look();

  const std::shared_ptr<AccessPolicy> policy_;
  const std::function<void(bool by_files)> on_change_;
  int64_t version_ = 0;
  EventLoop loop_;  // last: its thread ends first
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_POLICY_WATCH_H_
