// The lighthouse of one job of torchft: the replicas that were heard, and the calls that wait for a
// quorum.
#ifndef COHORT_COORDINATOR_SERVICE_TORCHFT_LIGHTHOUSE_H_
#define COHORT_COORDINATOR_SERVICE_TORCHFT_LIGHTHOUSE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/access/peer_access.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/engine/reply_sink.h"
#include "coordinator/service/torchft/quorum_decision.h"
#include "grpcpp/support/byte_buffer.h"
#include "torchft/lighthouse.pb.h"

namespace cohort::coordinator::torchft {

namespace wire = ::torchft;

// The tenant whose own store has the keys of a port's job, such as "torchft-7700".
std::string TenantOfPort(int port);
// The key with the last quorum id. It only grows.
inline constexpr char kQuorumIdKey[] = "quorum_id";
// The key that says why there is no quorum. It exists while calls have waited for over a second.
inline constexpr char kMissingKey[] = "missing";
// The key for which the calls wait, so that `cohort waits` lists them. It never exists.
inline constexpr char kWaitKey[] = "quorum";

// A replica's call that waits for a quorum.
class QuorumCall : public ReplySink {
 public:
  virtual ~QuorumCall() = default;
  // Runs once, without a lock, unless the engine has replied or the caller is gone. It may destroy
  // the call.
  virtual void End(const absl::StatusOr<grpc::ByteBuffer>& answer) = 0;
  const CallHandle& handle() const { return handle_; }
  const std::string& replica() const { return replica_; }

 private:
  friend class Lighthouse;
  std::string replica_;
  CallHandle handle_;
  bool over_ = false;  // guarded by the lock of the Lighthouse
};

// The status with which the engine has ended a call's wait.
absl::Status StatusOfWait(const Reply& reply);

// Thread-safe.
class Lighthouse final : private ReplySink {
 public:
  // `move_alarm` makes sure that Tick is called at an instant or before. It runs under the lock.
  // `dispatcher` outlives it. Calls of Enter are over before the destruction.
  Lighthouse(int port, const QuorumOptions& options, Dispatcher& dispatcher,
             std::function<void(Instant)> move_alarm);

  // The identity of a client; null: there is no access policy.
  using Owner = std::shared_ptr<const std::string>;
  // As Dispatcher::Admit, for the tenant of the port.
  absl::StatusOr<Owner> Admit(Method method, PeerAccess* access);
  // A replica belongs to the identity that used its id, until it has been silent for the heartbeat
  // timeout. Errors: PERMISSION_DENIED (it is of another identity), RESOURCE_EXHAUSTED (names the
  // limit).
  absl::Status Heartbeat(const std::string& replica, const Owner& owner);

  // Parks a call for at most `wait`. An earlier call of the replica ends with ABORTED. Errors: the
  // call is not parked; those of Heartbeat.
  absl::Status Enter(QuorumCall* call, wire::QuorumMember member, const Owner& owner,
                     absl::Duration wait);
  // The call ends: the engine has replied to it (`reply`), or the caller is gone. Returns the
  // status with which it ends.
  absl::Status Leave(QuorumCall* call, const absl::Status& reply);

  // Decides again, since time has passed. Returns the instant of the next Tick.
  Instant Tick();

 private:
  struct Parked {
    QuorumCall* call = nullptr;  // valid until Leave
    CallHandle handle;
    wire::QuorumMember member;
    int64_t bytes = 0;  // of the member in an answer
  };
  // A call to end without the lock. The call may be gone, unless the engine cancels its handle.
  struct Ending {
    QuorumCall* call = nullptr;
    CallHandle handle;
    absl::StatusOr<grpc::ByteBuffer> answer;
  };
  // The steps after a change that need no lock.
  struct Work {
    std::vector<Ending> endings;
    int64_t add_to_id = 0;  // 0: the id stays
  };

  absl::Status Heard(const std::string& replica, const Owner& owner, Instant now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetSilent(Instant silent_since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(const std::string& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Now, or a little later if the last decision took long.
  void Decide(Instant now, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DecideNow(Instant now, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the members of a decision from the parked calls.
  void Choose(QuorumDecision decision, Instant now, Work* work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerChosen(const absl::Status& status, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellWhoIsMissing(Instant now, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SubmitUnanswered(CallBody body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Call NewCall(CallBody body) const;
  void Do(Work work);
  // Gets the new quorum id.
  void OnReply(Reply&& reply, DeliveryContext& context) override;

  const int port_;
  const QuorumOptions options_;
  Dispatcher& dispatcher_;
  Engine& engine_;
  const std::function<void(Instant)> move_alarm_;
  const int64_t first_id_;  // milliseconds of the calendar clock at the start
  Mutex mutex_;
  QuorumState state_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Parked> parked_ ABSL_GUARDED_BY(mutex_);  // of state_.candidates
  int64_t parked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Owner> owners_ ABSL_GUARDED_BY(mutex_);  // of state_.heartbeats
  SharedCharge replicas_charge_ ABSL_GUARDED_BY(mutex_);
  Instant next_forgetting_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t quorum_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // The members of a quorum that waits for its new id. No other is decided meanwhile.
  std::map<std::string, Parked> chosen_ ABSL_GUARDED_BY(mutex_);
  Instant id_asked_ ABSL_GUARDED_BY(mutex_);
  Instant next_tick_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  Instant next_decision_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string reason_ ABSL_GUARDED_BY(mutex_);  // of the last decision that there is no quorum
  Instant next_telling_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool has_told_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::coordinator::torchft

#endif  // COHORT_COORDINATOR_SERVICE_TORCHFT_LIGHTHOUSE_H_
