// The methods that concern the whole process rather than one group.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_ADMIN_METHODS_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_ADMIN_METHODS_H_

#include <string>

#include "absl/status/status.h"
#include "coordinator/service/codec/message_bytes.h"
#include "coordinator/service/engine/engine.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace cohort::coordinator {

// Each parses `request`, acts, and puts the response into `message`. `change` names the change, for
// the log; empty: nothing was changed. Errors: INVALID_ARGUMENT.
absl::Status RunLimits(Engine& engine, google::protobuf::io::ZeroCopyInputStream* request,
                       MessageBytes* message, std::string* change);
absl::Status RunDrain(Engine& engine, google::protobuf::io::ZeroCopyInputStream* request,
                      MessageBytes* message, std::string* change);
absl::Status RunServerStats(Engine& engine, google::protobuf::io::ZeroCopyInputStream* request,
                            MessageBytes* message);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_ADMIN_METHODS_H_
