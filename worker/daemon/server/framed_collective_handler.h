// Runs collectives that arrive by framed RPC (base/framed_rpc/frame.h), on the same addresses as
// gRPC. A frame takes less time than a call in HTTP/2.
#ifndef COHORT_WORKER_DAEMON_SERVER_FRAMED_COLLECTIVE_HANDLER_H_
#define COHORT_WORKER_DAEMON_SERVER_FRAMED_COLLECTIVE_HANDLER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/access/peer_access.h"
#include "base/framed_rpc/server/blocking_server.h"
#include "worker/daemon/methods/worker_service.h"

namespace cohort::worker {

// Thread-safe.
class FramedCollectiveHandler final : public framed_rpc::BlockingHandler {
 public:
  // The only method of the server.
  static constexpr char kMethod[] = "cohort.v1.WorkerService/RunCollective";

  // `service` outlives it.
  explicit FramedCollectiveHandler(WorkerService& service) : service_(service) {}

  absl::Status Run(uint16_t method, absl::string_view request, PeerAccess* access,
                   std::string* answer, std::shared_ptr<const void>* kept) override;

 private:
  WorkerService& service_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_SERVER_FRAMED_COLLECTIVE_HANDLER_H_
