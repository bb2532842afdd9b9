// What a worker daemon tells people and scripts about itself.
#ifndef COHORT_CLIENT_COLLECTIVE_WORKER_CLIENT_H_
#define COHORT_CLIENT_COLLECTIVE_WORKER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/data_type.h"

namespace cohort::client {

// How long a rank has slept in calls because another had not come.
struct RankWait {
  int rank = 0;  // the other
  absl::Duration time;
};

// A rank that lives in a worker.
struct WorkerRank {
  std::string client;  // whose it is
  int client_pid = 0;
  std::string tenant;
  std::string group;
  int64_t generation = 0;
  int rank = 0;
  int world_size = 0;
  bool attached = false;  // its client runs the collectives
  std::vector<std::string> paths;
  std::string ended;            // why, if the generation has
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

// One call of a rank.
struct FlightCall {
  int64_t sequence = 0;  // of the rank's calls, from 1
  int64_t generation = 0;
  std::string verb;
  DataType type = DataType::kU8;
  int64_t bytes = 0;
  int root = -1;       // or the peer of a single transfer; -1: none
  absl::Time started;  // of the worker's calendar clock
  std::optional<absl::Time> finished;
  // "running"; "enqueued", of what a stream has not come to; "running on the device"; "OK", or the
  // name of the error
  std::string state;
  // Of its work on a device, if there was any.
  std::optional<absl::Time> device_started;
  std::optional<absl::Time> device_finished;
};

// The last calls of a rank, oldest first.
struct FlightRecord {
  std::string tenant;
  std::string group;
  int64_t generation = 0;
  int rank = 0;
  std::vector<FlightCall> calls;
};

// Thread-safe. Needs no session. Errors of all: UNAVAILABLE and DEADLINE_EXCEEDED name the address.
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;

  // `timeout` is each call's. Never blocks.
  static std::unique_ptr<WorkerClient> Create(const std::string& address, absl::Duration timeout);

  virtual absl::StatusOr<WorkerInfo> Describe() = 0;
  // Of a group's ranks there; empty: of all.
  virtual absl::StatusOr<std::vector<FlightRecord>> ReadFlightRecords(const std::string& group) = 0;

 protected:
  WorkerClient() = default;
};

// For chrome://tracing and Perfetto: a process for each group, a thread for each rank and one for
// its device, if it has any, and a slice for each call; one that runs still is as long as until
// `now`, and says so.
std::string ChromeTrace(const std::vector<FlightRecord>& records, absl::Time now);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_WORKER_CLIENT_H_
