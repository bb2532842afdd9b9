// A rank that lives here on behalf of a client.
#ifndef COHORT_WORKER_SERVICE_GROUP_ENTRY_H_
#define COHORT_WORKER_SERVICE_GROUP_ENTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/shm/local_socket.h"
#include "worker/group/local_group.h"

namespace cohort::worker {

// What is told of a rank, of the generation it is in.
struct GroupFacts {
  std::string tenant;
  std::string group;
  int64_t generation = 0;
  int rank = 0;
  int world_size = 0;
  std::vector<std::string> paths;
  std::string why_not;
  std::string ended;  // why; empty: it has not
};

// Thread-safe.
class GroupEntry {
 public:
  // `generation` has ended by itself, with `cause`; once for each. On any thread; must not block.
  using OnEnded = std::function<void(int64_t generation, const std::string& cause)>;

  // Blocks as LocalGroup::Create does, whose errors these are.
  static absl::StatusOr<std::shared_ptr<GroupEntry>> Join(LocalGroupOptions options,
                                                          OnEnded on_ended);
  virtual ~GroupEntry() = default;

  LocalGroup& group() { return *group_; }
  GroupFacts facts() const;
  absl::Status Rejoin(absl::Duration timeout);
  // What a tensor verb came to: some ends are seen by calls first.
  void NoteResult(int64_t generation, const absl::Status& status);

  // Ends what is in flight, on all ranks. Never blocks.
  void Abort(absl::string_view cause);
  // Says good-bye to the coordinator, and thereby ends what waits there. Blocks while it is away.
  void Leave(absl::string_view reason);

  // Gives the client at the other end of the socket what it needs to run collectives itself, its
  // answer included. An error: nothing was sent. UNIMPLEMENTED unless attached.
  virtual absl::Status HandOver(const shm::LocalSocket& client, Instant deadline);

 protected:
  GroupEntry() = default;

 private:
  struct Ends;

  void TakeFacts();

  std::shared_ptr<Ends> ends_;
  std::string tenant_;
  std::unique_ptr<LocalGroup> group_;
  mutable Mutex mutex_;
  GroupFacts facts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_GROUP_ENTRY_H_
