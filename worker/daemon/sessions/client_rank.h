// A client's rank in this worker.
#ifndef COHORT_WORKER_DAEMON_SESSIONS_CLIENT_RANK_H_
#define COHORT_WORKER_DAEMON_SESSIONS_CLIENT_RANK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "base/threads/mutex.h"
#include "base/threads/timed_mutex.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/process_group/process_group.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/tensors/tensor_table.h"
#include "worker/group/flight_recorder/flight_recorder.h"
#include "worker/group/local_group.h"

namespace cohort::worker {

// Facts about a rank, in its present generation.
struct GroupFacts {
  std::string tenant;
  std::string group;
  int64_t generation = 0;
  int rank = 0;
  int world_size = 0;
  bool attached = false;
  std::vector<std::string> paths;
  std::vector<std::string> machines;
  std::string why_not;
  std::string ended;  // the cause; empty: it has not ended
};

// Thread-safe.
class ClientRank {
 public:
  // Called on any thread; they must not block. Both may be null.
  struct Notifier {
    // `generation` has ended by itself; once for each.
    std::function<void(int64_t generation, const std::string& cause)> on_ended;
    // Another rank has left it in order. Only a rank whose client executes the collectives says so.
    std::function<void(int64_t generation, int rank, const std::string& cause)> on_left;
  };

  virtual ~ClientRank() = default;

  GroupFacts facts() const;
  std::string tenant() const;
  virtual client::ProcessGroup& membership() = 0;
  // The group that executes the collectives here; null if the client executes them.
  virtual LocalGroup* local() { return nullptr; }

  // Joins the next generation. Errors: those of LocalGroup::Rejoin, and the reason of the
  // cancellation.
  virtual absl::Status Rejoin(absl::Duration timeout) = 0;
  // Cancels joins and rejoins, now or later.
  client::Cancellation& joining() { return *joining_; }
  // Records the result of a collective: some ends of a generation show in calls first.
  void NoteResult(int64_t generation, const absl::Status& status);

  // The objects of one other rank, or the rounds of all ranks, whose answers the client gets in the
  // present generation.
  struct Inbox {
    TimedMutex mutex;  // of the call that waits for one
    uint64_t sent ABSL_GUARDED_BY(mutex) = 0;  // answers
    // The last one: the client may not have got it.
    std::vector<std::string> last ABSL_GUARDED_BY(mutex);
    HeldQuota last_bytes ABSL_GUARDED_BY(mutex);
    size_t asked ABSL_GUARDED_BY(mutex) = 0;  // hash of its request
  };
  static constexpr int kRounds = -1;
  // Precondition: `source` is a rank of the group, or kRounds.
  std::shared_ptr<Inbox> InboxOf(int source);

  // Ends calls in flight, on all ranks. Never blocks for long.
  virtual void Abort(absl::string_view cause) = 0;
  // Leaves the group at the coordinator, which ends waits there. Blocks while the coordinator is
  // away.
  virtual void Leave(absl::string_view reason) = 0;

  // Answers the client at the other end of `client`, and sends it the connections to run
  // collectives itself. The client keeps a flight record in `flight_record`, unless that is empty.
  // After an error nothing was sent. Errors: FAILED_PRECONDITION (not attached, or sent
  // already), INVALID_ARGUMENT (too little memory for a record).
  virtual absl::Status SendToClient(const shm::LocalSocket& client, TensorMemory flight_record,
                                    Instant deadline) = 0;
  // The rank's last calls, oldest first.
  virtual std::vector<FlightEntry> ReadFlightRecord() const = 0;
  // The ranks for which this rank has slept in calls, the longest sleep first; at most kMostWaits.
  static constexpr size_t kMostWaits = 16;
  virtual std::vector<WaitedFor> ReadWaits() const = 0;

 protected:
  // `joining` cancels the joining of the group.
  ClientRank(std::shared_ptr<client::Cancellation> joining, Notifier notifier)
      : joining_(std::move(joining)), notifier_(std::move(notifier)) {}

  void SetFacts(GroupFacts facts);
  void NoteEnd(int64_t generation, const std::string& cause);
  void NoteLeft(int64_t generation, int rank, const std::string& cause) const;

 private:
  const std::shared_ptr<client::Cancellation> joining_;
  const Notifier notifier_;
  mutable Mutex mutex_;
  GroupFacts facts_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<Inbox>> inboxes_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;  // the last generation that has ended
  std::string why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SESSIONS_CLIENT_RANK_H_
