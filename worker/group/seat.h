// A rank's place in a group: its membership at the coordinator, and whom it meets there, generation
// after generation.
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
  // How ranks find each other. Its heap is not null.
  BootstrapOptions bootstrap;
};

// One thread at a time, but for what is called by others.
class Seat {
 public:
  // Takes the seat, and waits until the group is complete. Errors: those of ProcessGroup::Create.
  static absl::StatusOr<std::unique_ptr<Seat>> Take(SeatOptions options);
  // Leaves.
  ~Seat();

  // Connects the ranks of the generation. Errors: those of MeetRanks.
  absl::StatusOr<Connections> Meet(absl::Duration timeout);
  // From here on `on_end` is told, once, why the generation has ended: such as "rank 3 is gone: its
  // process 4711 ended". At once if it has. On any thread; it must not block, nor call the seat.
  void Attend(std::function<void(const std::string&)> on_end);
  // What was attended to is not any more. The others hear that this rank leaves the generation.
  void Disregard();

  // Takes the seat in the next generation, and connects its ranks. Errors: those of
  // ProcessGroup::Rejoin and MeetRanks; ABORTED if each generation broke before it stood, until the
  // timeout.
  absl::StatusOr<Connections> Rejoin(absl::Duration timeout);

  // The other ranks of this host are told, at once, that this one is out because of `why`; those of
  // other hosts hear of it when it leaves. From any thread.
  void Tell(const std::string& why);

  client::ProcessGroup& membership() const { return *membership_; }

 private:
  explicit Seat(SeatOptions options) : options_(std::move(options)) {}

  // Leaves with the coordinator, for people, how the ranks reach each other.
  void NotePaths(const MetRanks& met);
  void OnEvent(const client::GroupEvent& event);
  void End(int64_t generation, const std::string& cause);

  SeatOptions options_;
  std::shared_ptr<client::Connection> connection_;
  std::unique_ptr<client::ProcessGroup> membership_;

  Mutex watch_mutex_;
  std::unique_ptr<HostWatch> watch_ ABSL_GUARDED_BY(watch_mutex_);

  Mutex mutex_;
  std::function<void(const std::string&)> on_end_ ABSL_GUARDED_BY(mutex_);
  int64_t attended_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ended_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string cause_ ABSL_GUARDED_BY(mutex_);  // of that
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SEAT_H_
