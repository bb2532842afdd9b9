// A rank that lives here on behalf of a client.
#ifndef COHORT_WORKER_SERVICE_GROUP_ENTRY_H_
#define COHORT_WORKER_SERVICE_GROUP_ENTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/shm/local_socket.h"
#include "client/rendezvous/cancellation.h"
#include "client/rendezvous/process_group.h"
#include "worker/group/flight_recorder.h"
#include "worker/group/local_group.h"
#include "worker/service/stream_order.h"
#include "worker/service/tensor_table.h"

namespace cohort::worker {

// What is told of a rank, of the generation it is in.
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
  std::string ended;  // why; empty: it has not
};

// Thread-safe.
class GroupEntry {
 public:
  // `generation` has ended by itself, with `cause`; once for each. On any thread; must not block.
  using OnEnded = std::function<void(int64_t generation, const std::string& cause)>;

  virtual ~GroupEntry() = default;

  GroupFacts facts() const;
  virtual client::ProcessGroup& membership() = 0;
  // Who executes its collectives here; null if the client does.
  virtual LocalGroup* local() { return nullptr; }
  // With its client's streams; null where the rank has no GPU here.
  virtual StreamOrder* streams() { return nullptr; }

  // Takes the seat in the next generation. Errors: those of LocalGroup::Rejoin, and the reason of
  // the cancellation.
  virtual absl::Status Rejoin(absl::Duration timeout) = 0;
  // Ends the taking of a seat, now or later.
  client::Cancellation& seating() { return *seating_; }
  // What a tensor verb came to: some ends are seen by calls first.
  void NoteResult(int64_t generation, const absl::Status& status);

  // Memory of a call that has failed, which its device may not be done with: stays mapped until
  // what the group had there is gone, or done.
  void Keep(std::vector<std::shared_ptr<const void>> owners);
  // How much is kept now. To be let go once a call that begins now has been done by the device:
  // calls of a group come to it one after the other.
  size_t kept() const;
  void LetGo(size_t kept);

  // Ends what is in flight, on all ranks. Never blocks for long.
  virtual void Abort(absl::string_view cause) = 0;
  // Says good-bye to the coordinator, and thereby ends what waits there. Blocks while it is away.
  virtual void Leave(absl::string_view reason) = 0;

  // Answers the client at the other end of the socket, and gives it what it needs to run
  // collectives itself. `flight_record`: where the client will keep one, if it says so. An error:
  // nothing was sent. FAILED_PRECONDITION unless attached.
  virtual absl::Status HandOver(const shm::LocalSocket& client, TensorMemory flight_record,
                                Instant deadline) = 0;
  // The rank's last calls, oldest first.
  virtual std::vector<FlightEntry> ReadFlightRecord() const = 0;
  // For whom the rank has slept in calls, the longest first; kMostWaits at most.
  static constexpr size_t kMostWaits = 16;
  virtual std::vector<WaitedFor> ReadWaits() const = 0;

 protected:
  // `seating`: what the seat is taken with.
  GroupEntry(std::shared_ptr<client::Cancellation> seating, OnEnded on_ended)
      : seating_(std::move(seating)), on_ended_(std::move(on_ended)) {}

  void SetFacts(GroupFacts facts);
  void NoteEnd(int64_t generation, const std::string& cause);
  // A new generation has begun: nothing of the last one is on a device any more.
  void LetGo();

 private:
  // Beyond, a client repeats what cannot work any more, and its calls have not come to a device.
  static constexpr size_t kMostKept = 1024;

  const std::shared_ptr<client::Cancellation> seating_;
  const OnEnded on_ended_;
  mutable Mutex mutex_;
  GroupFacts facts_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;  // the last generation that has
  std::string why_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_GROUP_ENTRY_H_
