// A rank whose client executes the collectives. The worker keeps the seat, watches the other ranks,
// and hands over memory and sockets.
#ifndef COHORT_WORKER_SERVICE_ATTACHED_ENTRY_H_
#define COHORT_WORKER_SERVICE_ATTACHED_ENTRY_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "worker/group/seat.h"
#include "worker/group/tensor_reporter.h"
#include "worker/service/group_entry.h"

namespace cohort::worker {

class AttachedEntry final : public GroupEntry {
 public:
  // Joins the group and meets the other ranks. Blocks for at most the membership's join_timeout
  // plus the bootstrap's timeout. Errors: those of Seat::Take and Seat::Meet.
  static absl::StatusOr<std::shared_ptr<GroupEntry>> Join(SeatOptions options, OnEnded on_ended);
  ~AttachedEntry() override;

  client::ProcessGroup& membership() override { return seat_->membership(); }
  absl::Status Rejoin(absl::Duration timeout) override;
  void Abort(absl::string_view cause) override;
  void Leave(absl::string_view reason) override;
  absl::Status HandOver(const shm::LocalSocket& client, TensorMemory flight_record,
                        Instant deadline) override;
  std::vector<FlightEntry> ReadFlightRecord() const override;
  std::vector<WaitedFor> ReadWaits() const override;

 private:
  AttachedEntry(std::shared_ptr<client::Cancellation> seating, OnEnded on_ended)
      : GroupEntry(std::move(seating), std::move(on_ended)) {}
  // Reads the flight record in the client's memory; empty before HandOver.
  TensorReporter::Look LookAtRecord() const;
  void Keep(Connections connections) ABSL_EXCLUSIVE_LOCKS_REQUIRED(seat_mutex_);

  std::string tenant_;
  const std::shared_ptr<TensorReporter> reporter_ = std::make_shared<TensorReporter>();
  Mutex seat_mutex_;  // held while the seat moves
  std::unique_ptr<Seat> seat_;
  // The connections of the present generation, until they are handed over.
  std::optional<Connections> connections_ ABSL_GUARDED_BY(seat_mutex_);
  bool left_ ABSL_GUARDED_BY(seat_mutex_) = false;

  mutable Mutex record_mutex_;
  TensorMemory flight_record_ ABSL_GUARDED_BY(record_mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_ATTACHED_ENTRY_H_
