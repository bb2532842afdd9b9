// What the methods have in common.
#ifndef COHORT_WORKER_SERVICE_ANSWER_H_
#define COHORT_WORKER_SERVICE_ANSWER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/answered.h"
#include "base/rpc/status_conversion.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/server_context.h"

namespace cohort::worker {

// A method's last words.
inline grpc::Status Answer(grpc::ServerContextBase* context, const absl::Status& status) {
  context->AddTrailingMetadata(kAnsweredKey, "1");
  return ToGrpcStatus(status);
}

// How long a call may take; `otherwise` if the request does not say. Errors: INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> ReadTimeout(bool present, const google::protobuf::Duration& timeout,
                                           absl::Duration otherwise);

std::string HostName();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_ANSWER_H_
