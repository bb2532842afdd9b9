// Helpers that all methods of the service use.
#ifndef COHORT_WORKER_DAEMON_METHODS_ANSWER_H_
#define COHORT_WORKER_DAEMON_METHODS_ANSWER_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/server_context.h"

namespace cohort::worker {

// Ends a method: marks the answer as the worker's own, and returns its status.
grpc::Status Answer(grpc::ServerContextBase* context, const absl::Status& status);

// Returns the call's timeout, or `otherwise` if the request has none. Errors: INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> ReadTimeout(bool present, const google::protobuf::Duration& timeout,
                                           absl::Duration otherwise);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_ANSWER_H_
