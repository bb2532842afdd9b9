// A client's rank whose collectives this worker executes.
#ifndef COHORT_WORKER_DAEMON_SESSIONS_DAEMON_RANK_H_
#define COHORT_WORKER_DAEMON_SESSIONS_DAEMON_RANK_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/daemon/sessions/client_rank.h"
#include "worker/group/local_group.h"

namespace cohort::worker {

class DaemonRank final : public ClientRank {
 public:
  // Blocks like LocalGroup::Create. Errors: those of LocalGroup::Create.
  static absl::StatusOr<std::shared_ptr<ClientRank>> Join(LocalGroupOptions options,
                                                          Notifier notifier);

  client::ProcessGroup& membership() override { return group_->membership(); }
  LocalGroup* local() override { return group_.get(); }
  absl::Status Rejoin(absl::Duration timeout) override;
  void Abort(absl::string_view cause) override;
  void Leave(absl::string_view reason) override;
  absl::Status SendToClient(const shm::LocalSocket& client, TensorMemory flight_record,
                            Instant deadline) override;
  std::vector<FlightEntry> ReadFlightRecord() const override {
    return group_->flight_recorder().Read();
  }
  std::vector<WaitedFor> ReadWaits() const override {
    return group_->flight_recorder().ReadWaits(facts().world_size, kMostWaits);
  }

 private:
  DaemonRank(std::shared_ptr<client::Cancellation> joining, Notifier notifier)
      : ClientRank(std::move(joining), std::move(notifier)) {}
  void TakeFacts();

  std::string tenant_;
  std::unique_ptr<LocalGroup> group_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SESSIONS_DAEMON_RANK_H_
