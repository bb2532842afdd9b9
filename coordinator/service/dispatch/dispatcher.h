// Converts request bytes to calls and replies to answer bytes. All services use it, with or without
// a socket.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_DISPATCHER_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_DISPATCHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/access/audit_log.h"
#include "base/access/peer_access.h"
#include "base/id128.h"
#include "base/port/limits/tenant_rates.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/codec/message_bytes.h"
#include "coordinator/service/codec/outgoing_blobs.h"
#include "coordinator/service/dispatch/call_observer.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/engine/reply_sink.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace cohort::coordinator {

struct DispatcherOptions {
  absl::Duration max_wait = absl::Hours(1);
  int64_t max_message_bytes = int64_t{4} << 20;
  // Each call needs the rights of its caller.
  bool checks_access = false;
};

// The parts of a call that are needed to encode its answer.
struct Asker {
  GroupKey key;
  Id128 session;
  int page_size = 0;  // of a ListGroups request
  // The client, for the audit log; null: there is no access policy.
  std::shared_ptr<const std::string> identity;
  std::shared_ptr<const std::string> address;
  // The object of a call that the log names once it was done; empty: the log does not name the
  // call.
  std::string audited;
};

// Thread-safe.
class Dispatcher {
 public:
  // `engine` and `observer` (may be null) must outlive it.
  Dispatcher(const DispatcherOptions& options, Engine& engine, CallObserver* observer);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // The one place where rights are checked; Decode and Run call it. `access` is null if there is no
  // access policy. A request for the tenant "default", of a client that has no role there, is for
  // the client's own tenant. A member may close its group, and only an operator another one.
  // Errors: PERMISSION_DENIED (names the client, its role, the method).
  absl::Status Admit(Method method, PeerAccess* access, Caller* caller);
  // The same for a call that waits, once rights may have changed.
  absl::Status AdmitAgain(Method method, PeerAccess* access, const GroupKey& key,
                          const Id128& session);
  // A call of the tenant over gRPC took so long. The listener reads the tenant's streams more slowly
  // by that.
  void CountTime(const std::string& tenant, absl::Duration took);
  const std::shared_ptr<TenantRates>& rates() const { return rates_; }
  // Counts a request with the weight of its protocol (tenant_rates.h): for the tenant, if Admit has
  // admitted `caller`, and otherwise for the client's identity. The coordinator reads the
  // connection of a client more slowly whose tenant calls more often than
  // max_tenant_requests_per_second.
  void CountRequest(PeerAccess* access, const Caller& caller, int64_t weight, int64_t bytes);
  // Refuses a client before its request is parsed, if it has the role in no tenant.
  absl::Status AdmitAnywhere(Method method, PeerAccess* access);
  // Decodes the request of a method that has a decode function. The request has `bytes` bytes.
  // `time_left` is the time to the caller's deadline. Errors besides those of the method and of
  // Admit: RESOURCE_EXHAUSTED (no memory for it).
  absl::Status Decode(Method method, PeerAccess* access,
                      google::protobuf::io::ZeroCopyInputStream* request, size_t bytes,
                      absl::Duration time_left, Call* call, Asker* asker);
  // Encodes the answer of an OK reply. Errors: the status with which the call fails: that of the
  // reply, or RESOURCE_EXHAUSTED (no memory for the answer).
  absl::Status Encode(Method method, const Reply& reply, const Asker& asker,
                      DeliveryContext& context, MessageBytes* message);
  // Logs a refusal of the state machine, if it is for lack of rights.
  void LogRefusal(Method method, const absl::Status& status, PeerAccess* access);
  // Runs a method without a decode function: Limits, Drain, ServerStats, CheckAccess. Errors: those
  // of Admit.
  absl::Status Run(Method method, PeerAccess* access,
                   google::protobuf::io::ZeroCopyInputStream* request, MessageBytes* message);

  DecodeContext MakeDecodeContext(absl::Duration time_left) const;

  // Counts calls in flight; pair OnStarted and OnGone.
  Instant OnStarted(Method method);
  void OnHandled(Method method, absl::StatusCode code, Instant started);
  void OnGone() {
    // After the last call has gone, this object is not used any more, unless a thread awaits that.
    if ((active_.load() & kAwaited) != 0) {
      GoneWhileAwaited();
    } else if (active_.fetch_sub(kOneCall) == kOneCall + kAwaited) {
      NotifyIdle();
    }
  }
  int64_t active() const { return active_.load() / kOneCall; }
  // Waits until no call is in flight. False: calls were left at the end of `timeout`. Only one
  // thread at a time may call it.
  bool AwaitIdle(absl::Duration timeout);

  // The number of an attached stream, unique in the process.
  int64_t NewStreamNumber() { return last_stream_.fetch_add(1, std::memory_order_relaxed) + 1; }
  Engine& engine() { return engine_; }
  OutgoingBlobs& blobs() { return blobs_; }
  bool checks_access() const { return options_.checks_access; }
  // The measured memory of gRPC and a reactor for a call in progress.
  static constexpr int64_t kRpcCost = 14 << 10;
  int64_t max_message_bytes() const { return options_.max_message_bytes; }

 private:
  // The answer to CheckAccess (check_access.cc).
  absl::Status CheckAccess(PeerAccess* access, google::protobuf::io::ZeroCopyInputStream* stream,
                           MessageBytes* message);

  // The lowest bit of `active_` is set while a thread waits until no call is in flight.
  static constexpr int64_t kAwaited = 1;
  static constexpr int64_t kOneCall = 2;
  void NotifyIdle();
  void GoneWhileAwaited();
  void LogRefusal(Method method, const absl::Status& status, const AuditedClient& client,
                  Instant now);
  struct Admitted {
    std::shared_ptr<const Rights> rights;
    std::string tenant;  // of the rights, if it is not the requested one
    Role role = Role::kNone;
  };
  absl::StatusOr<Admitted> RightsFor(Method method, PeerAccess* access, const GroupKey& key,
                                     const Id128& session);

  const DispatcherOptions options_;
  Engine& engine_;
  CallObserver* const observer_;
  OutgoingBlobs blobs_;
  std::atomic<int64_t> active_{0};
  std::atomic<int64_t> last_stream_{0};
  Mutex mutex_;
  bool idle_ ABSL_GUARDED_BY(mutex_) = false;
  AuditLog audit_;
  const std::shared_ptr<TenantRates> rates_ = std::make_shared<TenantRates>();
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_DISPATCHER_H_
