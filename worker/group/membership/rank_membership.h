// A rank's membership in a group: its session at the coordinator, and its connections to the other
// ranks, over several generations.
#ifndef COHORT_WORKER_GROUP_MEMBERSHIP_RANK_MEMBERSHIP_H_
#define COHORT_WORKER_GROUP_MEMBERSHIP_RANK_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/process_group/process_group.h"
#include "worker/group/bootstrap/group_bootstrap.h"
#include "worker/group/connections/connections.h"
#include "worker/group/membership/peer_process_watch.h"

namespace cohort::worker {

struct RankMembershipOptions {
  client::ProcessGroupOptions membership;
  // How ranks find each other. The heap is not null.
  BootstrapOptions bootstrap;
};

// One thread at a time, except where a method says otherwise.
class RankMembership {
 public:
  // Joins the group, and waits until it is complete. Errors: those of ProcessGroup::Create.
  static absl::StatusOr<std::unique_ptr<RankMembership>> Join(RankMembershipOptions options);
  // Leaves the group.
  ~RankMembership();

  // Connects the ranks of the generation. Errors: those of ConnectRanks.
  absl::StatusOr<Connections> Connect(absl::Duration timeout);
  // Callbacks run on any thread; they must not block, nor call this object.
  struct Callbacks {
    // Called once when the generation ends, with the cause, such as "rank 3 is gone: its process
    // 4711 ended".
    std::function<void(const std::string& cause)> on_end;
    // Called once for each rank that leaves the generation in order, with a cause such as "rank 3
    // left the group". The other ranks still reach each other.
    std::function<void(int rank, const std::string& cause)> on_left;
  };
  // From now on calls these, and at once for earlier events. Both are set.
  void Notify(Callbacks callbacks);
  // Undoes Notify and ends the watch. The other ranks learn that this rank leaves the
  // generation.
  void StopWatching();

  // Joins the next generation, and connects its ranks. Errors: those of ProcessGroup::Rejoin and
  // ConnectRanks; ABORTED (until the timeout, each generation ended before its ranks were
  // connected).
  absl::StatusOr<Connections> Rejoin(absl::Duration timeout);

  // Ends the generation because of `why`. The other ranks of this host learn it at once, and those of
  // other hosts, and calls that wait at the coordinator, through the coordinator. Does not block. Any
  // thread may call it.
  void EndForAll(const std::string& why);

  client::ProcessGroup& process_group() const { return *process_group_; }

 private:
  explicit RankMembership(RankMembershipOptions options) : options_(std::move(options)) {}

  // Stores at the coordinator, for people, how the ranks reach each other.
  void StorePaths(const ConnectedRanks& connected);
  void OnEvent(const client::GroupEvent& event);
  void LeftLocked(int64_t generation, int rank, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(int64_t generation, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks a generation as complete: earlier events of it concern ranks that are not in it.
  void MarkComplete();

  RankMembershipOptions options_;
  std::shared_ptr<client::Connection> connection_;
  std::unique_ptr<client::ProcessGroup> process_group_;

  Mutex watch_mutex_;
  std::unique_ptr<PeerProcessWatch> watch_ ABSL_GUARDED_BY(watch_mutex_);

  Mutex mutex_;
  Callbacks callbacks_ ABSL_GUARDED_BY(mutex_);  // empty functions: Notify was not called
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // the complete one
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;    // of the group when it became complete
  // Ranks that went from generations that are not complete yet.
  struct Early {
    int64_t generation = 0;
    int64_t revision = 0;
    std::optional<int> left;  // the rank, if it left in order
    std::string cause;
  };
  std::vector<Early> early_ ABSL_GUARDED_BY(mutex_);
  int64_t ended_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string cause_ ABSL_GUARDED_BY(mutex_);  // of that generation's end
  std::map<int, std::string> left_ ABSL_GUARDED_BY(mutex_);  // causes by rank, of this generation
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_MEMBERSHIP_RANK_MEMBERSHIP_H_
