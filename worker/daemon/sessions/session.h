// A client's session, and everything that the client made in it.
#ifndef COHORT_WORKER_DAEMON_SESSIONS_SESSION_H_
#define COHORT_WORKER_DAEMON_SESSIONS_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/access/access_policy.h"
#include "base/id128.h"
#include "base/shm/heap.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"
#include "client/rendezvous/call/cancellation.h"
#include "cohort/v1/worker.pb.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/sessions/client_rank.h"
#include "worker/daemon/tensors/tensor_table.h"

namespace cohort::worker {

// The quotas of all sessions of a worker.
struct Quotas {
  explicit Quotas(QuotaLimits descriptors = {}, QuotaLimits tensor_bytes = {})
      : descriptors(std::make_shared<Quota>(kDescriptors, descriptors)),
        tensor_bytes(std::make_shared<Quota>(kTensorBytes, tensor_bytes)) {}

  std::shared_ptr<Quota> descriptors;
  std::shared_ptr<Quota> tensor_bytes;
};

// Calls in flight share the session; its objects live until the last call returns. Thread-safe.
class Session {
 public:
  struct Client {
    std::string name;
    int pid = 0;
    std::string host;
    std::string identity;              // empty: the worker has no access policy
    std::string tenant{};              // its own one; empty: it has none
    std::vector<std::string> names{};  // for the access policy; empty: the worker has no policy
  };

  // Errors: RESOURCE_EXHAUSTED (descriptors).
  static absl::StatusOr<std::shared_ptr<Session>> Create(Client client,
                                                         const Quotas& quotas = Quotas());

  const Id128& id() const { return id_; }
  const Client& client() const { return client_; }
  // Such as: trainer, process 4711 on host-a.
  std::string Describe() const;

  CallGate::Share& calls() { return calls_; }
  const std::shared_ptr<QuotaShare>& descriptors() const { return descriptors_; }

  // --- Memory.

  // Creates the heap on the first call. Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<shm::Heap>> heap();
  // The same for a client that attaches. From now on the heap's bytes are not counted: the client's
  // process touches the pages, and it has the worker's own user.
  absl::StatusOr<std::shared_ptr<shm::Heap>> AttachHeap();
  TensorTable& tensors() { return tensors_; }
  // Counts the memory of a call, which counts like that of tensors, also once a client attaches. It
  // holds nothing yet, and may outlive the session.
  HeldQuota CountCall() const { return HeldQuota(tensor_share_); }
  // Allocates from the heap. Errors: RESOURCE_EXHAUSTED, which names the flag if it is a limit.
  absl::StatusOr<TensorMemory> Allocate(int64_t bytes);

  // --- Groups, by numbers that are never reused.

  uint64_t NextGroup();
  // Errors: ABORTED (the session has ended meanwhile).
  absl::Status AddGroup(uint64_t group, std::shared_ptr<ClientRank> entry);
  // Errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<ClientRank>> FindGroup(uint64_t group) const;
  absl::StatusOr<std::shared_ptr<ClientRank>> TakeGroup(uint64_t group);
  std::map<uint64_t, std::shared_ptr<ClientRank>> groups() const;
  // Errors: those of Caller::Require, for a tenant of one of the groups.
  absl::Status CheckTenants(const Caller& caller) const;
  // Whether a client with these rights may have the session: it is a member of the groups' tenants.
  bool MayBelongTo(const Rights& rights) const;

  // Its cancellation ends all joins of the session, and no later join succeeds.
  client::Cancellation& joining() { return joining_; }

  // --- Events.

  // Must not block, and not call the session.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnEvent(const v1::SessionEvent& event) = 0;
    virtual void OnEnded(absl::string_view cause) = 0;
  };
  // Null: no listener. Once it returns, the previous listener is not called any more.
  void SetListener(Listener* listener);
  void Notify(const v1::SessionEvent& event);

  // --- The end.

  // Ends all calls in flight, on all ranks, with `cause`; runs once. Never blocks. Returns false if
  // the session had ended before.
  bool End(absl::string_view cause);
  // Leaves all groups, after End. Blocks while their coordinator is away.
  void Leave();
  bool ended() const;
  // Readable once the session has ended.
  int ended_fd() const { return ended_fd_.get(); }

 private:
  Session(Client client, UniqueFd ended_fd, const Quotas& quotas,
          std::shared_ptr<QuotaShare> descriptors, HeldQuota own);

  const Id128 id_;
  const Client client_;
  const UniqueFd ended_fd_;
  CallGate::Share calls_;
  const std::shared_ptr<QuotaShare> descriptors_;
  const HeldQuota own_descriptors_;  // `ended_fd_` and the heap
  const size_t most_kept_;           // by the heap
  const std::shared_ptr<QuotaShare> tensor_share_;
  const std::shared_ptr<HeldQuota> tensor_bytes_;  // the heap's
  TensorTable tensors_;
  client::Cancellation joining_;

  mutable Mutex mutex_;
  std::shared_ptr<shm::Heap> heap_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_group_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<ClientRank>> groups_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::string cause_ ABSL_GUARDED_BY(mutex_);

  Mutex listener_mutex_;
  Listener* listener_ ABSL_GUARDED_BY(listener_mutex_) = nullptr;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SESSIONS_SESSION_H_
