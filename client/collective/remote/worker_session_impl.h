// The session behind worker_session.h: its calls, its memory, and how it ends.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_SESSION_IMPL_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_SESSION_IMPL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/rpc/client_tls.h"
#include "base/shm/host_folder.h"
#include "base/tensor/tensor.h"
#include "base/threads/hooked_call.h"
#include "base/threads/mutex.h"
#include "client/collective/remote/attach_connection.h"
#include "client/collective/remote/framed_collective_client.h"
#include "client/collective/remote/worker_session.h"
#include "client/rendezvous/call/cancellation.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace cohort::client {

// Thread-safe.
class WorkerSessionImpl final : public WorkerSession,
                                public std::enable_shared_from_this<WorkerSessionImpl> {
 public:
  WorkerSessionImpl(const WorkerSessionOptions& options, ClientTls tls);
  // WorkerSession::Connect makes all sessions, so they are of this class.
  static WorkerSessionImpl& Of(WorkerSession& session) {
    return static_cast<WorkerSessionImpl&>(session);
  }
  ~WorkerSessionImpl() override;
  absl::Status Open();

  const std::string& worker() const override { return worker_; }
  const std::string& why_not_attached() const override { return why_not_attached_; }
  int64_t max_message_bytes() const { return opened_.max_message_bytes(); }
  int64_t inline_bytes() const { return options_.inline_bytes; }

  // --- Calls. `call` is such as &Stub::RunCollective; the session is put into the request.

  // Errors: those of the worker, unchanged; ABORTED (the session has ended: the worker is gone);
  // DEADLINE_EXCEEDED (no answer within a moment after `timeout`); the reason of the thread's
  // CancellationScope. `answered` (may be null): whether the worker itself has spoken.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, Request& request, absl::Duration timeout, Response* response,
                    bool* answered = nullptr) {
    request.set_session(opened_.session());
    grpc::ClientContext context;
    SetDeadline(context, timeout);
    const CallCancellations cancellations(nullptr);
    const CallCancellations::Listener on_cancel(cancellations, [&] { context.TryCancel(); });
    grpc::Status answer;
    RunHooked([&] { answer = ((*stub_).*method)(&context, request, response); });
    const absl::Status status = Read(context, answer, answered);
    if (status.ok()) return status;
    const absl::Status cancelled = cancellations.reason();
    return cancelled.ok() ? status : cancelled;
  }
  // A call that waits for no rank and whose result does not matter, such as one that frees memory.
  // No cancellation ends it. If it fails, the end of the session does the same.
  template <typename Method, typename Request, typename Response>
  void Notify(Method method, Request& request, Response* response) {
    request.set_session(opened_.session());
    grpc::ClientContext context;
    SetDeadline(context, kGoodBye);
    ((*stub_).*method)(&context, request, response);
  }

  // The same for RunCollective, by `framed` where it is connected.
  absl::Status RunCollective(FramedCollectiveClient& framed, v1::RunCollectiveRequest& request,
                             absl::Duration timeout, v1::RunCollectiveResponse* response,
                             bool* answered);
  // Returns a new framed RPC client. Each group has its own.
  std::unique_ptr<FramedCollectiveClient> MakeFramedClient() const;

  // Writes or reads a tensor outside of the shared memory, in order from its beginning.
  absl::Status WriteTensor(uint64_t tensor, const void* from, int64_t bytes,
                           absl::Duration timeout);
  absl::Status ReadTensor(uint64_t tensor, void* to, int64_t bytes, absl::Duration timeout);

  // --- Memory. Null unless attached.
  AttachConnection* attached() const { return attached_.get(); }

  // Contiguous elements in the worker's memory, of no defined value, freed with the last copy.
  // Precondition: attached. Errors: RESOURCE_EXHAUSTED, and those of Call.
  absl::StatusOr<Tensor> CreateTensor(DataType type, const Shape& shape);
  // Where the tensor's first element lies in the worker's memory.
  struct Location {
    uint64_t tensor = 0;
    int64_t first = 0;  // in elements of its type
  };
  std::optional<Location> Find(const Tensor& tensor) const;
  // If the worker is gone, the tensor is gone, too.
  void FreeTensor(uint64_t tensor);

  // Memory of the worker for the time of a call; it is kept for later calls.
  struct Scratch {
    uint64_t tensor = 0;
    int64_t bytes = 0;
    char* data = nullptr;  // null unless attached
  };
  absl::StatusOr<Scratch> TakeScratch(int64_t bytes);
  // `reusable`: no call works with it any more.
  void GiveBack(const Scratch& scratch, bool reusable);

  // --- Notifications of the worker.

  // They may run on any thread, and must not block or call the session.
  struct GroupCallbacks {
    // Called once, with the reason, when this session or that generation of the group ends.
    std::function<void(const std::string& cause, bool session_ended)> on_end;
    // Called once for each rank that has left that generation in order.
    std::function<void(int rank, const std::string& cause)> on_left;
  };
  // From now on calls these, and at once for earlier events. One group has one watch.
  void Watch(uint64_t group, int64_t generation, GroupCallbacks callbacks);
  // When it returns, the group's callbacks do not run any more.
  void Unwatch(uint64_t group);
  // OK, or why this session, or this generation of the group, has ended.
  absl::Status Standing(uint64_t group, int64_t generation) const;

 private:
  struct GroupEnd {
    int64_t generation = 0;
    std::string cause;
  };
  struct Watched {
    int64_t generation = 0;
    GroupCallbacks callbacks;
  };
  // The ranks that have left the last generation that a rank has left.
  struct Leavers {
    int64_t generation = 0;
    std::map<int, std::string> causes;
  };
  static constexpr absl::Duration kGoodBye = absl::Seconds(1);
  // The most bytes of scratch that are kept for later calls.
  static constexpr int64_t kKeptScratch = int64_t{256} << 20;

  static void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);
  absl::Status Read(const grpc::ClientContext& context, const grpc::Status& status,
                    bool* answered) const;
  // `from_worker`: the worker itself has said so.
  absl::Status Read(const grpc::Status& status, bool from_worker, bool* answered) const;
  // The error of an attempt to connect, such as a refused certificate.
  std::string WhyNotConnected();
  // The end of a sentence that says why the worker's local socket is out of reach.
  std::string WhyNotReached(const shm::HostFolder& folder) const;
  // Reads events until the stream ends.
  void Listen();
  void OnGroupEnded(const v1::GroupEnded& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnRankLeft(const v1::RankLeft& left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WorkerSessionOptions options_;
  const ClientTls tls_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext stream_context_;
  v1::SessionOpened opened_;
  std::string worker_;
  std::unique_ptr<AttachConnection> attached_;
  std::string why_not_attached_;

  mutable Mutex mutex_;
  bool opened_yet_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, GroupEnd> group_ends_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Leavers> leavers_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Watched> watched_ ABSL_GUARDED_BY(mutex_);
  // By offset in the shared memory.
  struct Block {
    uint64_t tensor = 0;
    int64_t bytes = 0;
  };
  std::map<int64_t, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Scratch> scratch_ ABSL_GUARDED_BY(mutex_);
  int64_t scratch_bytes_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread listener_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_SESSION_IMPL_H_
