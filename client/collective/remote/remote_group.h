// A group whose rank for this client is in a worker daemon.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_REMOTE_GROUP_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_REMOTE_GROUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "base/threads/timed_mutex.h"
#include "client/collective/group.h"
#include "client/collective/remote/worker_session.h"

namespace cohort::v1 {
class JoinGroupResponse;
class RunCollectiveRequest;
class RunCollectiveResponse;
class RunObjectRequest;
enum ObjectOperation : int;
}  // namespace cohort::v1

namespace cohort::client {

class CallTensors;
class FramedCollectiveClient;
class WorkerSessionImpl;

struct RemoteGroupOptions {
  // Shared with other groups of this process; null: one of its own, to `worker`.
  std::shared_ptr<WorkerSession> session;
  WorkerSessionOptions worker;

  std::string coordinator;  // empty: the worker's
  std::string tenant;
  std::string group;
  std::optional<int> rank;  // absent: the coordinator assigns one
  int world_size = 0;
  // Not 0: the group is elastic, with at least so many ranks and at most `world_size`: a Rejoin forms
  // it without ranks that are lost. The same on all ranks.
  int min_world_size = 0;
  std::string member;  // empty: "rank-N"
  std::string parameters_digest;
  std::optional<absl::Duration> lease;
  // How long the coordinator keeps objects that no rank reads: above 0 and at most 24 h, the same
  // on all ranks. Absent: 3600 s.
  std::optional<absl::Duration> data_expiration;
  absl::Duration join_timeout = absl::Seconds(300);
  absl::Duration timeout = absl::Seconds(300);  // of calls without their own
  // Tensor collectives are not the worker's to run: see worker::AttachedGroup.
  bool attached = false;
  // Attached: whether this process puts TLS on its sockets to ranks of other hosts; a v1::RankTls.
  int rank_tls = 0;

  // Which memory the group moves; the same on all ranks. Only an attached group has GPU memory.
  Placement placement = Placement::kHost;
};

// The worker runs the collectives; this process waits for its answers. On the worker's host, both
// processes map the memory of Allocate, and calls on such tensors move no bytes.
//
// It moves host memory only. GPU tensors and streams are INVALID_ARGUMENT: worker::LocalGroup and
// worker::AttachedGroup move GPU tensors.
//
// Errors are those of the worker's group, word for word. If the worker itself is gone, calls end at
// once with ABORTED, naming it and the group; the group then needs another session.
class RemoteGroup final : public Group {
 public:
  // Joins the group and waits until the group is complete. Errors: those of WorkerSession::Connect
  // and of worker::LocalGroup::Create; INVALID_ARGUMENT (data_expiration is out of its range, or
  // the placement has GPU memory and `attached` is not set).
  static absl::StatusOr<std::unique_ptr<RemoteGroup>> Create(RemoteGroupOptions options);
  // Leaves.
  ~RemoteGroup() override;

  // After ABORTED or DEADLINE_EXCEEDED: joins the next generation. Tensors stay valid.
  // Not beside other calls.
  absl::Status Rejoin(absl::Duration timeout = absl::Seconds(60)) override;

  // By rank: how the worker reaches it, such as "shared memory".
  const std::vector<std::string>& paths() const override { return paths_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  const std::string& why_not() const { return why_not_; }
  WorkerSession& session() const { return *options_.session; }
  // As the worker numbers it, in this session.
  uint64_t number() const { return group_; }

  const std::string& name() const override { return options_.group; }
  int64_t generation() const override { return generation_; }
  int rank() const override { return rank_; }
  int size() const override { return world_size_; }
  Placement placement() const override { return options_.placement; }

  std::vector<PeerStats> Stats() const override { return peers_.Read(); }

  // Without memory shared with the worker: memory of this process.
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device device = {}) override;

  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   const CallOptions& options) override;
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers,
                                           const CallOptions& options) override;
  absl::Status Exchange(absl::Span<const TensorTransfer> transfers,
                        const CallOptions& options) override;
  absl::Status FailCollective(const absl::Status& why, const CallOptions& options) override;
  absl::Status CopyAll(absl::Span<const TensorCopy> copies, const CallOptions& options) override;

  absl::Status SendObject(absl::string_view object, int destination,
                          const CallOptions& options) override;
  absl::StatusOr<std::string> ReceiveObject(int source, const CallOptions& options) override;
  absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int root,
                                              const CallOptions& options) override;
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(absl::string_view object,
                                                            const CallOptions& options) override;
  absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(absl::Span<const int> members,
                                                              absl::string_view object,
                                                              const CallOptions& options) override;
  void Abort(const absl::Status& cause) override;

 private:
  explicit RemoteGroup(RemoteGroupOptions options);

  WorkerSessionImpl& wire() const;
  void Adopt(const v1::JoinGroupResponse& joined);
  absl::Duration TimeoutOf(const CallOptions& options) const;
  // The error that ends all calls at once, or OK.
  absl::Status Standing() const;
  // Adds the group's name if the worker did not know it.
  absl::Status Explain(const absl::Status& status, bool answered) const;

  // Adds the tensors that this rank has in the call.
  absl::Status AddTensors(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                          CallTensors& tensors, v1::RunCollectiveRequest& request) const;
  absl::Status RunRequest(v1::RunCollectiveRequest& request, CallTensors& tensors,
                          const CallOptions& options, v1::RunCollectiveResponse* response);
  CallTensors TensorsOf(const CallOptions& options) const;
  v1::RunObjectRequest ObjectRequest(v1::ObjectOperation operation, absl::string_view object,
                                     int peer) const;
  absl::StatusOr<std::vector<std::string>> RunObject(v1::RunObjectRequest& request,
                                                     const CallOptions& options);
  absl::StatusOr<std::string> OneObject(absl::StatusOr<std::vector<std::string>> objects) const;

  RemoteGroupOptions options_;
  std::unique_ptr<FramedCollectiveClient> framed_client_;
  uint64_t group_ = 0;  // as the worker numbers it
  int64_t generation_ = 0;
  int rank_ = 0;
  int world_size_ = 0;
  std::vector<std::string> paths_;
  std::vector<std::string> hosts_;
  std::string why_not_;
  // The objects of another rank, or the rounds of all ranks, whose answers have arrived here, in this
  // generation.
  struct Inbox {
    TimedMutex mutex;  // of the call that waits for one
    uint64_t taken ABSL_GUARDED_BY(mutex) = 0;
  };
  static constexpr int kRounds = -1;
  // Sends the request with the number of answers that the inbox of `source` (a rank or kRounds) has
  // taken, and counts the answer.
  absl::StatusOr<std::vector<std::string>> TakeNext(int source, v1::RunObjectRequest& request,
                                                    const CallOptions& options);
  Mutex inboxes_mutex_;
  std::map<int, std::shared_ptr<Inbox>> inboxes_ ABSL_GUARDED_BY(inboxes_mutex_);
  Mutex count_mutex_;   // threads may call beside each other
  PeerCounters peers_;  // one of them at a time counts
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_REMOTE_GROUP_H_
