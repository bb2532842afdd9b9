// The stores that TCPStore clients share: one for each port of the coordinator.
//
// A store begins with its first client and ends with its last one: then its keys are deleted. A
// TCPStore client never connects again, so nothing that a store holds has a use afterwards. A
// connection counts as a client from its first request for which it has rights. If none of the
// clients has written anything, the keys stay: they are of a launcher, which wrote them by gRPC.
//
// PyTorch's own store ends with rank 0. Here a straggler of a dead job would keep its keys for the
// next job, whose ranks would take them for their own. So a store also ends when a rank of a new
// job comes, if one of its ranks has gone and only ranks are left: their connections are closed.
// Clients are ranks that count themselves under kRanksKey, as those with a world_size do. An agent
// of torchrun does not, so its store outlives its workers.
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_JOBS_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_JOBS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/engine/reply_sink.h"

namespace cohort::coordinator::tcpstore {

// The clients have their own deadlines, and cancel.
inline constexpr absl::Duration kNoEnd = absl::Hours(24 * 365);

// PyTorch's name of the key in which the ranks of a job count themselves.
inline constexpr char kRanksKey[] = "init/";

// The tenant whose own store has the keys of a port, such as "tcpstore-29500".
std::string TenantOfPort(int port);

// Thread-safe. No lock of a connection may be held in a call.
class Jobs {
 public:
  // A connection's place in a barrier.
  struct BarrierPlace {
    std::string key;
    int64_t round = 0;  // 0: in no barrier
    // Set once the client's wait is refused: the barrier does not count it any more.
    std::shared_ptr<std::atomic<bool>> refused;
  };
  // Ends the client's connection. It must not call this class.
  using Fail = std::function<void(const absl::Status& why)>;

  // Deletes what an earlier process of the coordinator left in the stores of `ports`.
  Jobs(Engine& engine, const std::vector<int>& ports);

  // A client of the store of a port.
  struct Client {
    // Ends its connection. It must not call this class.
    std::function<void()> close;
    std::atomic<bool> has_ended{false};  // its job has: no request of it may be served
    int64_t job = 0;                     // 0: it has not come
    bool is_rank = false;
    bool has_written = false;
  };
  // A client that has rights comes, writes for the first time, counts itself as a rank, and goes.
  // `client` outlives its stay.
  void Enter(int port, Client* client);
  void EnterAsWriter(int port, Client* client);
  void EnterAsRank(int port, Client* client);
  void Leave(int port, Client* client);

  // A client enters the barrier `key` of `size` clients. The last one releases all. Otherwise
  // `sink` gets an OK reply when that happens; `handle` and `place` are for LeaveBarrier. If the
  // state machine refuses the release, `fail` is called for each client. Errors: INVALID_ARGUMENT
  // (size is not positive, or differs from that of another client; names both).
  absl::StatusOr<bool> EnterBarrier(int port, absl::string_view key, int64_t size,
                                    const std::string& client, Fail fail, ReplySink* sink,
                                    CallHandle* handle, BarrierPlace* place);
  // A client waits no more. The barrier does not count it, unless it was released meanwhile.
  void LeaveBarrier(int port, const BarrierPlace& place);

 private:
  class Release;
  struct Barrier {
    int64_t size = 0;
    // By BarrierPlace::refused.
    absl::flat_hash_map<std::shared_ptr<std::atomic<bool>>, Fail> arrived;
    int64_t round = 0;
    std::string name;  // of the key on which the clients wait, which never exists for long
  };
  struct Job {
    int64_t number = 0;
    absl::flat_hash_set<Client*> clients;
    int ranks = 0;  // of the clients
    bool lost_rank = false;
    bool has_written = false;  // one of its clients, which may have left
    absl::flat_hash_map<std::string, Barrier> barriers;
  };

  Job& JobLocked(int port) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Clear(int port);
  void Submit(int port, CallBody body, ReplySink* sink);

  Engine& engine_;
  Mutex mutex_;
  std::map<int, Job> jobs_ ABSL_GUARDED_BY(mutex_);  // by port
  int64_t last_round_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_job_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TCPSTORE_JOBS_H_
