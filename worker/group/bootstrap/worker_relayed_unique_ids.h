// Exchanges ids for a rank whose membership a worker daemon holds.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_WORKER_RELAYED_UNIQUE_IDS_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_WORKER_RELAYED_UNIQUE_IDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/remote/remote_group.h"
#include "worker/group/bootstrap/unique_id_exchange.h"

namespace cohort::worker {

// The daemon asks the coordinator for its client. Valid for the generation in which it was made;
// later calls return ABORTED.
class WorkerRelayedUniqueIds final : public UniqueIdExchange {
 public:
  // `membership` outlives it.
  explicit WorkerRelayedUniqueIds(const client::RemoteGroup* membership)
      : membership_(*membership), generation_(membership->generation()) {}

  const std::string& group() const override { return membership_.name(); }
  int64_t generation() const override { return generation_; }
  int rank() const override { return membership_.rank(); }
  int size() const override { return membership_.size(); }

  absl::Status Publish(absl::string_view name, const std::vector<std::string>& ids) override;
  absl::StatusOr<std::vector<std::string>> Fetch(absl::string_view name,
                                                 absl::Duration timeout) override;
  absl::Status Report(absl::string_view name, Phase phase, absl::string_view detail) override;

 private:
  const client::RemoteGroup& membership_;
  const int64_t generation_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_WORKER_RELAYED_UNIQUE_IDS_H_
