// A session with a worker daemon, which several groups of a process share.
//
//   cohort::client::WorkerSessionOptions options;
//   options.address = "unix:/run/cohort/worker.sock";
//   COHORT_ASSIGN_OR_RETURN(auto session, cohort::client::WorkerSession::Connect(options));
//   cohort::client::RemoteGroupOptions rank_options;
//   rank_options.session = session;
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_SESSION_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::client {

struct WorkerSessionOptions {
  // "host:port", "[::1]:port" or "unix:/path".
  std::string address = "127.0.0.1:7800";
  std::string client_name;  // for people; empty: this program's
  absl::Duration connect_timeout = absl::Seconds(10);
  // False: no memory is shared with the worker, as if it were on another host.
  bool attach = true;
  // A folder in which this process meets a worker of the same machine and user across their network
  // namespaces (shm::HostFolder). Empty: COHORT_HOST_FOLDER; not set: no folder.
  std::string host_folder;
  // Where memory is shared: tensors of this process that are larger are copied there, smaller ones
  // travel with the call. Up to 16 KiB both take the same time, and the second no memory.
  int64_t inline_bytes = int64_t{8} << 10;
};

// The worker leaves all groups of the session when the session is destroyed. Thread-safe.
class WorkerSession {
 public:
  // Blocks for at most `connect_timeout`. Errors: INVALID_ARGUMENT (no address, or a longer path
  // than Unix sockets have; a wrong host folder), UNAVAILABLE (the worker does not answer, or is
  // draining), DEADLINE_EXCEEDED, the reason of the thread's CancellationScope.
  static absl::StatusOr<std::shared_ptr<WorkerSession>> Connect(
      const WorkerSessionOptions& options);
  virtual ~WorkerSession() = default;

  // Such as: the worker at 10.0.0.4:7800 (process 4711 on host-a).
  virtual const std::string& worker() const = 0;
  // Why this process shares no memory with the worker; empty if it does.
  virtual const std::string& why_not_attached() const = 0;

 protected:
  WorkerSession() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_SESSION_H_
