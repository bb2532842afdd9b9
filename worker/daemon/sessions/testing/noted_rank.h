// A rank of no group that notes why it is aborted.
#ifndef COHORT_WORKER_DAEMON_SESSIONS_TESTING_NOTED_RANK_H_
#define COHORT_WORKER_DAEMON_SESSIONS_TESTING_NOTED_RANK_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/daemon/sessions/client_rank.h"

namespace cohort::worker {

class NotedRank final : public ClientRank {
 public:
  explicit NotedRank(std::string tenant = "")
      : ClientRank(std::make_shared<client::Cancellation>(), {}) {
    GroupFacts facts;
    facts.tenant = std::move(tenant);
    SetFacts(std::move(facts));
  }

  client::ProcessGroup& membership() override { std::abort(); }
  absl::Status Rejoin(absl::Duration) override { return absl::OkStatus(); }
  void Abort(absl::string_view cause) override { aborted_ = std::string(cause); }
  void Leave(absl::string_view) override {}
  absl::Status SendToClient(const shm::LocalSocket&, TensorMemory, Instant) override {
    return absl::OkStatus();
  }
  std::vector<FlightEntry> ReadFlightRecord() const override { return {}; }
  std::vector<WaitedFor> ReadWaits() const override { return {}; }
  const std::string& aborted() const { return aborted_; }

 private:
  std::string aborted_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SESSIONS_TESTING_NOTED_RANK_H_
