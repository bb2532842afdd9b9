// All sessions of the daemon.
#ifndef COHORT_WORKER_DAEMON_SESSIONS_SESSION_TABLE_H_
#define COHORT_WORKER_DAEMON_SESSIONS_SESSION_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/threads/mutex.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/sessions/session.h"

namespace cohort::worker {

struct WorkerStats {
  int64_t sessions = 0;
  int64_t groups = 0;
  int64_t tensors = 0;
  int64_t tensor_bytes = 0;
};

// Thread-safe.
class SessionTable {
 public:
  // `policy`: of the clients that have names. Null: they keep their rights.
  explicit SessionTable(Quotas quotas = Quotas(),
                        std::shared_ptr<const AccessPolicy> policy = nullptr)
      : quotas_(std::move(quotas)), policy_(std::move(policy)), state_(std::make_shared<State>()) {}
  ~SessionTable();

  // Errors: UNAVAILABLE (draining), RESOURCE_EXHAUSTED (sessions, descriptors, threads),
  // PERMISSION_DENIED (`caller` is no member of a tenant, or no longer), UNAUTHENTICATED (its
  // certificate has ended).
  static constexpr size_t kMaxSessions = 4096;
  // With an access policy, each identity and each tenant may have as many.
  static constexpr size_t kMaxSessionsOfIdentity = kMaxSessions / 4;
  static constexpr size_t kMaxSessionsOfTenant = kMaxSessions / 2;
  absl::StatusOr<std::shared_ptr<Session>> Open(Session::Client client, const Caller& caller);
  // Errors: INVALID_ARGUMENT (no id of a session), NOT_FOUND, PERMISSION_DENIED (the session is of
  // another identity, or its identity is no longer a member of a tenant of its groups).
  absl::StatusOr<std::shared_ptr<Session>> Find(absl::string_view id, const Caller& caller) const;
  // Aborts the session's groups at once, with `cause`, and leaves them on a thread of their own. If
  // the system refuses that thread, one thread leaves all such sessions in turn. Never blocks.
  void End(const std::shared_ptr<Session>& session, absl::string_view cause);
  // Ends the sessions whose clients have lost their rights by a change of the policy, also if they
  // send no calls. To be called after each change.
  void EndWithoutRights();
  // The same for one session, to be called when a group of it has begun: a change of the policy
  // after the call was checked may have been looked at before. Errors: PERMISSION_DENIED (it ends).
  absl::Status CheckRights(const std::shared_ptr<Session>& session);
  // Counts descriptors that belong to no session yet.
  std::shared_ptr<QuotaShare> NewDescriptorShare() const {
    return std::make_shared<QuotaShare>(quotas_.descriptors,
                                        "clients that have not said their session hold");
  }
  std::vector<std::shared_ptr<Session>> All() const;
  // Includes sessions whose groups are still being left. A count that stays above zero after all
  // sessions have ended shows a leak.
  WorkerStats Stats() const;

  // Refuses new sessions and groups from now on, and cancels joins that are in progress.
  void Drain();
  // Errors: UNAVAILABLE.
  absl::Status CheckServing() const;
  bool draining() const { return !CheckServing().ok(); }
  // Waits until all ended sessions have left their groups. Returns false at `deadline`.
  bool AwaitLeft(Instant deadline) const;

 private:
  // Shared with the threads that leave.
  struct State {
    mutable Mutex mutex;
    bool draining ABSL_GUARDED_BY(mutex) = false;
    std::map<Id128, std::shared_ptr<Session>> sessions ABSL_GUARDED_BY(mutex);
    std::map<Id128, std::shared_ptr<Session>> leaving ABSL_GUARDED_BY(mutex);
    // The sessions of `leaving` that have no thread of their own. The thread that leaves them
    // starts before the first session and ends with the table.
    bool has_leaver ABSL_GUARDED_BY(mutex) = false;
    bool ended ABSL_GUARDED_BY(mutex) = false;
    std::vector<std::shared_ptr<Session>> in_turn ABSL_GUARDED_BY(mutex);
  };

  // Errors: RESOURCE_EXHAUSTED.
  static absl::Status CheckShare(const State& state, const Session::Client& client)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex);
  absl::Status StartLeaver();
  static void LeaveInTurn(const std::shared_ptr<State>& state);
  static void Leave(const std::shared_ptr<State>& state, std::shared_ptr<Session> session);

  const Quotas quotas_;
  const std::shared_ptr<const AccessPolicy> policy_;
  const std::shared_ptr<State> state_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SESSIONS_SESSION_TABLE_H_
