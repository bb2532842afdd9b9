// A rank's place in a group: its membership at the coordinator, and its connections to the other
// ranks, over several generations.
#ifndef COHORT_WORKER_GROUP_SEAT_H_
#define COHORT_WORKER_GROUP_SEAT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/rendezvous/connection.h"
#include "client/rendezvous/process_group.h"
#include "worker/group/connections.h"
#include "worker/group/group_bootstrap.h"
#include "worker/group/host_watch.h"

namespace cohort::worker {

struct SeatOptions {
  client::ProcessGroupOptions membership;
  // How ranks find each other. The heap is not null.
  BootstrapOptions bootstrap;
};

// One thread at a time, except where a method says otherwise.
class Seat {
 public:
  // Joins the group, and waits until it is complete. Errors: those of ProcessGroup::Create.
  static absl::StatusOr<std::unique_ptr<Seat>> Take(SeatOptions options);
  // Leaves the group.
  ~Seat();

  // Connects the ranks of the generation. Errors: those of MeetRanks.
  absl::StatusOr<Connections> Meet(absl::Duration timeout);
  // From now on, calls `on_end` once when the generation ends, with the cause, such as "rank 3 is
  // gone: its process 4711 ended". Calls it at once if the generation has ended already. It runs on
  // any thread; it must not block, nor call the seat.
  void Attend(std::function<void(const std::string&)> on_end);
  // Undoes Attend and ends the watch. The other ranks learn that this rank leaves the generation.
  void Disregard();

  // Joins the next generation, and connects its ranks. Errors: those of ProcessGroup::Rejoin and
  // MeetRanks; ABORTED (until the timeout, each generation ended before its ranks were connected).
  absl::StatusOr<Connections> Rejoin(absl::Duration timeout);

  // Tells the other ranks of this host at once that this rank leaves because of `why`. Ranks of
  // other hosts learn it when this rank leaves. Any thread may call it.
  void Tell(const std::string& why);

  client::ProcessGroup& membership() const { return *membership_; }

 private:
  explicit Seat(SeatOptions options) : options_(std::move(options)) {}

  // Stores at the coordinator, for people, how the ranks reach each other.
  void NotePaths(const MetRanks& met);
  void OnEvent(const client::GroupEvent& event);
  void End(int64_t generation, const std::string& cause);
  void EndLocked(int64_t generation, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks a generation as complete: earlier events of it concern ranks that are not in it.
  void Stand();

  SeatOptions options_;
  std::shared_ptr<client::Connection> connection_;
  std::unique_ptr<client::ProcessGroup> membership_;

  Mutex watch_mutex_;
  std::unique_ptr<HostWatch> watch_ ABSL_GUARDED_BY(watch_mutex_);

  Mutex mutex_;
  std::function<void(const std::string&)> on_end_ ABSL_GUARDED_BY(mutex_);
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // the complete one
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;    // of the group when it became complete
  // Ends of generations that are not complete yet.
  struct Early {
    int64_t generation = 0;
    int64_t revision = 0;
    std::string cause;
  };
  std::vector<Early> early_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string cause_ ABSL_GUARDED_BY(mutex_);  // of that generation's end
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SEAT_H_
