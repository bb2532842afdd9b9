// cohort.v1.WorkerService: the requests of clients to the daemon.
#ifndef COHORT_WORKER_DAEMON_METHODS_WORKER_SERVICE_H_
#define COHORT_WORKER_DAEMON_METHODS_WORKER_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/access/peer_access.h"
#include "base/clock.h"
#include "client/rendezvous/call/cancellation.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/limits/idle_stream_watch.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/methods/checked_service.h"
#include "worker/daemon/methods/metrics.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker {

struct WorkerServiceOptions {
  std::string coordinator;  // for groups whose request has none
  // Further coordinators that a request may name; "*" for all.
  std::vector<std::string> allowed_coordinators;
  bool checks_access = false;   // see WorkerAccess
  std::string advertised_host;  // see BootstrapOptions
  std::string host_identity;    // see BootstrapOptions
  std::string host_folder;      // see BootstrapOptions
  int64_t max_message_bytes = 0;
  std::string attach_socket;                             // at which clients of this host get memory
  std::string attach_folder;                             // the id of its folder
  absl::Duration stream_idle_limit = absl::Seconds(30);  // for ReadTensor and WriteTensor
};

// Collectives and most other calls use the synchronous API: each runs to its end on the thread on
// which gRPC read it. Passing it to another thread would cost more than a small collective. Six
// methods use the callback API. OpenSession, JoinGroup, RejoinGroup and RunObject must notice at
// once that their caller is gone. The parts of WriteTensor and ReadTensor may never come or be
// taken.
class WorkerService final : public CheckedService {
 public:
  // All references outlive it.
  WorkerService(WorkerServiceOptions options, SessionTable& sessions, CallGate& gate,
                Metrics& metrics);

  // Sets the addresses at which it is served, as bound. Called once, before a client's first call.
  void ServeAt(std::vector<std::string> addresses) { addresses_ = std::move(addresses); }

  // worker_service.cc
  grpc::ServerWriteReactor<v1::SessionEvent>* OpenSession(grpc::CallbackServerContext* context,
                                                          const v1::OpenSessionRequest* request);
  grpc::Status GetWorker(grpc::ServerContext* context, const v1::GetWorkerRequest* request,
                         v1::GetWorkerResponse* response);
  grpc::Status GetFlightRecord(grpc::ServerContext* context,
                               const v1::GetFlightRecordRequest* request,
                               v1::GetFlightRecordResponse* response);

  // group_methods.cc
  grpc::ServerUnaryReactor* JoinGroup(grpc::CallbackServerContext* context,
                                      const v1::JoinGroupRequest* request,
                                      v1::JoinGroupResponse* response);
  grpc::ServerUnaryReactor* RejoinGroup(grpc::CallbackServerContext* context,
                                        const v1::RejoinGroupRequest* request,
                                        v1::JoinGroupResponse* response);
  grpc::Status LeaveGroup(grpc::ServerContext* context, const v1::LeaveGroupRequest* request,
                          v1::LeaveGroupResponse* response);
  grpc::Status AbortGroup(grpc::ServerContext* context, const v1::AbortGroupRequest* request,
                          v1::AbortGroupResponse* response);

  // unique_id_methods.cc
  grpc::Status PublishUniqueIds(grpc::ServerContext* context,
                                const v1::PublishUniqueIdsRequest* request,
                                v1::PublishUniqueIdsResponse* response);
  grpc::Status FetchUniqueIds(grpc::ServerContext* context,
                              const v1::FetchUniqueIdsRequest* request,
                              v1::FetchUniqueIdsResponse* response);
  grpc::Status ReportGroupInit(grpc::ServerContext* context,
                               const v1::ReportGroupInitRequest* request,
                               v1::ReportGroupInitResponse* response);

  // tensor_methods.cc
  grpc::Status CreateTensor(grpc::ServerContext* context, const v1::CreateTensorRequest* request,
                            v1::CreateTensorResponse* response);
  grpc::Status FreeTensor(grpc::ServerContext* context, const v1::FreeTensorRequest* request,
                          v1::FreeTensorResponse* response);
  grpc::ServerReadReactor<v1::WriteTensorRequest>* WriteTensor(grpc::CallbackServerContext* context,
                                                               v1::WriteTensorResponse* response);
  grpc::ServerWriteReactor<v1::ReadTensorResponse>* ReadTensor(
      grpc::CallbackServerContext* context, const v1::ReadTensorRequest* request);

  // collective_methods.cc
  grpc::Status RunCollective(grpc::ServerContext* context, const v1::RunCollectiveRequest* request,
                             v1::RunCollectiveResponse* response);
  // The same for both ways of a request: gRPC and plain frames. `buffered` is the memory of the
  // request beside the message. `memory` counts the call; it lives until the answer is sent.
  absl::Status RunCollective(const Caller& caller, const v1::RunCollectiveRequest& request,
                             int64_t buffered, v1::RunCollectiveResponse* response,
                             HeldQuota* memory);
  // The caller of RunCollective by a connection in plain frames.
  Caller FramedCaller(PeerAccess* access) { return access_.CallerOf("RunCollective", access); }
  grpc::ServerUnaryReactor* RunObject(grpc::CallbackServerContext* context,
                                      const v1::RunObjectRequest* request,
                                      v1::RunObjectResponse* response);

 private:
  // Joins a group until `joining` is cancelled.
  absl::Status Join(const std::shared_ptr<Session>& session, const v1::JoinGroupRequest& request,
                    const Caller& caller, std::vector<std::string> client_names,
                    const std::shared_ptr<client::Cancellation>& joining,
                    v1::JoinGroupResponse* response);
  absl::Status Rejoin(const std::shared_ptr<Session>& session,
                      const v1::RejoinGroupRequest& request, v1::JoinGroupResponse* response);
  // `memory` counts the call; it lives until the answer is sent.
  absl::Status RunObject(Session& session, const v1::RunObjectRequest& request,
                         v1::RunObjectResponse* response, HeldQuota* memory);

  const WorkerServiceOptions options_;
  WorkerAccess access_;
  const Instant started_;
  std::vector<std::string> addresses_;
  SessionTable& sessions_;
  CallGate& gate_;
  Metrics& metrics_;
  IdleStreamWatch streams_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_WORKER_SERVICE_H_
