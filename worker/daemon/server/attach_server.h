// Gives a session's memory to clients of the same host and user.
#ifndef COHORT_WORKER_DAEMON_SERVER_ATTACH_SERVER_H_
#define COHORT_WORKER_DAEMON_SERVER_ATTACH_SERVER_H_

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/shm/host_folder.h"
#include "base/shm/local_socket.h"
#include "base/unique_fd.h"
#include "cohort/v1/attach.pb.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker {

// Serves proto/cohort/v1/attach.proto with one thread for each client. When a client's connection
// closes, or its process ends, its session ends. Every process of the host can connect; a process
// of another user is rejected before the worker reads a byte or starts a thread for it.
class AttachServer {
 public:
  static constexpr size_t kMaxClients = 4096;

  // `sessions` outlives it. Processes that see `folder` connect from other network namespaces, too.
  // Errors: RESOURCE_EXHAUSTED (descriptors, threads), those of LocalListener::Create.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(SessionTable& sessions,
                                                             const shm::HostFolder& folder = {});
  // Closes all clients' connections; their sessions continue.
  ~AttachServer();

  const std::string& name() const { return listener_.name(); }

 private:
  struct AttachedClient {
    HeldQuota descriptors;  // until its session holds them
    shm::LocalSocket socket;
    std::thread thread;
    std::atomic<bool> done{false};
  };
  // A client that was rejected: it has its answer, and its connection stays open until its hello is
  // here. The kernel would drop the answer when the worker closes a connection with unread bytes.
  struct Rejected {
    shm::LocalSocket socket;
    Instant until;
  };
  // The oldest is dropped when another comes.
  static constexpr size_t kMaxRejected = 16;

  AttachServer(SessionTable& sessions, shm::LocalListener listener, UniqueFd stop);
  void Run();
  void DropDone();
  // Starts a thread for the client. Errors: why it is rejected.
  absl::Status Admit(shm::LocalSocket& client);
  void Reject(shm::LocalSocket client, const absl::Status& why);
  void DropRejected();
  void Serve(const shm::LocalSocket& client, HeldQuota descriptors);
  // Answers the hello. The session counts the client's `descriptors` from then on. Errors: those of
  // the answer.
  absl::StatusOr<std::shared_ptr<Session>> Greet(const shm::LocalSocket& client,
                                                 HeldQuota& descriptors);
  // Serves the client until it, the session or the server ends. Returns true if the client ended.
  // `process`: the client's pidfd, or -1. A child that the client forked keeps the connection open,
  // but not the client's process.
  bool Follow(const shm::LocalSocket& client, int process, Session& session);
  static void AnswerRequest(const shm::LocalSocket& client, Session& session,
                            shm::LocalSocket::Message message);
  // After OK, the client has its answer.
  static absl::Status SendToClient(const shm::LocalSocket& client, Session& session,
                                   const v1::SendConnections& request);
  static absl::Status Register(Session& session, const v1::RegisterMemory& request,
                               shm::LocalSocket::Message& message, v1::AttachAnswer* answer);

  SessionTable& sessions_;
  // The share of clients that have not named their session yet.
  const std::shared_ptr<QuotaShare> unnamed_;
  const shm::LocalListener listener_;
  const UniqueFd stop_;
  std::list<AttachedClient> attached_;  // used by the server's thread
  std::vector<Rejected> rejected_;      // used by the server's thread
  Instant next_log_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SERVER_ATTACH_SERVER_H_
