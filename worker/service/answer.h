// What the methods have in common.
#ifndef COHORT_WORKER_SERVICE_ANSWER_H_
#define COHORT_WORKER_SERVICE_ANSWER_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/status_conversion.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/server_context.h"

namespace cohort::worker {

// By this a client tells our words from those of the transport. The same in client/collective.
inline constexpr char kAnsweredKey[] = "cohort-worker-answered";

// A method's last words.
inline grpc::Status Answer(grpc::ServerContext* context, const absl::Status& status) {
  context->AddTrailingMetadata(kAnsweredKey, "1");
  return ToGrpcStatus(status);
}

// How long a call may take; `otherwise` if the request does not say. Errors: INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> ReadTimeout(bool present, const google::protobuf::Duration& timeout,
                                           absl::Duration otherwise);

std::string HostName();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_ANSWER_H_
