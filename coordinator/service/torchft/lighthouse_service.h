// gRPC's side of the lighthouse: the service of proto/torchft/lighthouse.proto for each port.
//
//   LighthouseServices lighthouses(options, {7700, 7710}, dispatcher);
//   COHORT_RETURN_IF_ERROR(lighthouses.Start());
//   builder.RegisterService(lighthouses.OfPort(7700));
#ifndef COHORT_COORDINATOR_SERVICE_TORCHFT_LIGHTHOUSE_SERVICE_H_
#define COHORT_COORDINATOR_SERVICE_TORCHFT_LIGHTHOUSE_SERVICE_H_

#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/alarm.h"
#include "coordinator/service/torchft/quorum_decision.h"
#include "grpcpp/impl/service_type.h"

namespace cohort::coordinator::torchft {

// The full name of the service.
inline constexpr char kServiceName[] = "torchft.LighthouseService";

// A port is a job, so each port has its own lighthouse with its own gRPC service. Thread-safe.
class LighthouseServices {
 public:
  // `dispatcher` outlives it.
  LighthouseServices(const QuorumOptions& options, const std::vector<int>& ports,
                     Dispatcher& dispatcher);
  // Precondition: the servers have been shut down and the dispatcher is idle.
  ~LighthouseServices();

  // Errors: RESOURCE_EXHAUSTED (threads).
  absl::Status Start() { return alarm_.Start(); }
  // `port` is one of those of the constructor.
  grpc::Service* OfPort(int port);

 private:
  struct Job;
  Instant TickAll();

  std::map<int, std::unique_ptr<Job>> jobs_;
  Alarm alarm_;
};

}  // namespace cohort::coordinator::torchft

#endif  // COHORT_COORDINATOR_SERVICE_TORCHFT_LIGHTHOUSE_SERVICE_H_
