// A worker daemon's state, for people and scripts.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_CLIENT_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/trace/flight_record.h"

namespace cohort::client {

// A label of those members of a group that live in a worker: its process. Their addresses are where
// that worker serves.
inline constexpr absl::string_view kWorkerLabel = "cohort.worker";

// How long a rank has slept in calls because another had not come.
struct RankWait {
  int rank = 0;  // the other
  absl::Duration time;
};

// A rank that lives in a worker.
struct WorkerRank {
  std::string client;  // the client that it belongs to
  int client_pid = 0;
  std::string tenant;
  std::string group;
  int64_t generation = 0;
  int rank = 0;
  int world_size = 0;
  bool attached = false;  // its client runs the collectives
  std::vector<std::string> paths;
  std::string ended;            // why the generation ended, if it has
  std::vector<RankWait> waits;  // the longest first
};

struct WorkerInfo {
  std::string version;
  int pid = 0;
  std::string host;
  absl::Duration uptime;
  std::string coordinator;
  int session_count = 0;
  int64_t tensor_count = 0;
  int64_t tensor_bytes = 0;
  bool draining = false;
  std::vector<WorkerRank> ranks;
};

// Thread-safe. Needs no session. Errors of all: UNAVAILABLE and DEADLINE_EXCEEDED name the address.
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;

  // `timeout` is each call's. Never blocks.
  static std::unique_ptr<WorkerClient> Create(const std::string& address, absl::Duration timeout);

  virtual absl::StatusOr<WorkerInfo> Describe() = 0;
  // Reads the records of a group's ranks on that worker; `group` empty: of all groups.
  virtual absl::StatusOr<std::vector<FlightRecord>> ReadFlightRecords(const std::string& group) = 0;

 protected:
  WorkerClient() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_WORKER_CLIENT_H_
