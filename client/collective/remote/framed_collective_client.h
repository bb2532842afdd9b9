// Calls the collectives of one group on a worker by framed RPC, beside gRPC.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_FRAMED_COLLECTIVE_CLIENT_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_FRAMED_COLLECTIVE_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/framed_rpc/client/framed_rpc_channel.h"
#include "base/rpc/client_tls.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/support/status.h"

namespace cohort::client {

// Connects in the background, and again after the connection broke. An older worker, or one with
// too many connections, does not serve framed RPC. Thread-safe.
class FramedCollectiveClient {
 public:
  FramedCollectiveClient(const std::string& address, int64_t max_message_bytes,
                         const ClientTls& tls = {});

  struct Answer {
    grpc::Status status;
    bool from_worker = false;  // the worker itself sent the status
  };
  // False: nothing was sent, and the call has to go by gRPC. One call at a time uses framed RPC.
  bool Run(const v1::RunCollectiveRequest& request, absl::Duration timeout,
           v1::RunCollectiveResponse* response, Answer* answer);

 private:
  const std::shared_ptr<framed_rpc::Channel> channel_;
  std::atomic<bool> busy_{false};
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_FRAMED_COLLECTIVE_CLIENT_H_
