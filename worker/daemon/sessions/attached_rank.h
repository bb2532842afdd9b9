// A rank whose client executes the collectives. The worker keeps the membership, watches the other
// ranks, and sends memory and sockets.
#ifndef COHORT_WORKER_DAEMON_SESSIONS_ATTACHED_RANK_H_
#define COHORT_WORKER_DAEMON_SESSIONS_ATTACHED_RANK_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/threads/mutex.h"
#include "worker/daemon/sessions/client_rank.h"
#include "worker/group/flight_recorder/tensor_wait_reporter.h"
#include "worker/group/membership/rank_membership.h"

namespace cohort::worker {

class AttachedRank final : public ClientRank {
 public:
  // Joins the group and connects to the other ranks. Blocks for at most the membership's
  // join_timeout plus the bootstrap's timeout. Errors: those of RankMembership::Join and
  // RankMembership::Connect.
  static absl::StatusOr<std::shared_ptr<ClientRank>> Join(RankMembershipOptions options,
                                                          Notifier notifier);
  ~AttachedRank() override;

  client::ProcessGroup& membership() override { return membership_->process_group(); }
  absl::Status Rejoin(absl::Duration timeout) override;
  void Abort(absl::string_view cause) override;
  void Leave(absl::string_view reason) override;
  absl::Status SendToClient(const shm::LocalSocket& client, TensorMemory flight_record,
                            Instant deadline) override;
  std::vector<FlightEntry> ReadFlightRecord() const override;
  std::vector<WaitedFor> ReadWaits() const override;

 private:
  AttachedRank(std::shared_ptr<client::Cancellation> joining, Notifier notifier)
      : ClientRank(std::move(joining), std::move(notifier)) {}
  // Reads the flight record in the client's memory; empty before SendToClient.
  TensorWaitReporter::Look LookAtRecord() const;
  void Keep(Connections connections) ABSL_EXCLUSIVE_LOCKS_REQUIRED(membership_mutex_);

  std::string tenant_;
  const std::shared_ptr<TensorWaitReporter> reporter_ = std::make_shared<TensorWaitReporter>();
  Mutex membership_mutex_;  // held while the generation changes
  std::unique_ptr<RankMembership> membership_;
  // The connections of the present generation, until they are sent.
  std::optional<Connections> connections_ ABSL_GUARDED_BY(membership_mutex_);
  bool left_ ABSL_GUARDED_BY(membership_mutex_) = false;

  mutable Mutex record_mutex_;
  TensorMemory flight_record_ ABSL_GUARDED_BY(record_mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SESSIONS_ATTACHED_RANK_H_
