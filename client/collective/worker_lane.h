// The quick way to a worker: collectives of one group in plain frames, beside gRPC.
#ifndef COHORT_CLIENT_COLLECTIVE_WORKER_LANE_H_
#define COHORT_CLIENT_COLLECTIVE_WORKER_LANE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/rendezvous/lane_channel.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/support/status.h"

namespace cohort::client {

// Connects in the background, and again after the connection broke. An older worker, or one with
// too many connections, does not serve lanes. Thread-safe.
class WorkerLane {
 public:
  WorkerLane(const std::string& address, int64_t max_message_bytes);

  struct Answer {
    grpc::Status status;
    bool own_words = false;  // the worker itself sent the status
  };
  // False: nothing was sent, and the call has to go by gRPC. One call at a time goes by the lane.
  bool Run(const v1::RunCollectiveRequest& request, absl::Duration timeout,
           v1::RunCollectiveResponse* response, Answer* answer);

 private:
  const std::shared_ptr<LaneChannel> channel_;
  std::atomic<bool> busy_{false};
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_WORKER_LANE_H_
