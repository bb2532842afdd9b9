// absl::Status on our side, grpc::Status on the wire: the same sixteen codes, both ways.
//
// Serialised cohort.v1.ErrorDetails travel as gRPC error details, and on our side as a payload of
// the status.
#ifndef COHORT_BASE_RPC_STATUS_CONVERSION_H_
#define COHORT_BASE_RPC_STATUS_CONVERSION_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace cohort {

// Where an absl::Status keeps the bytes of a cohort.v1.ErrorDetails. People read it wherever a
// status is printed with its payloads; it never travels.
inline constexpr absl::string_view kErrorDetailsUrl = "cohort.v1.ErrorDetails";

// Text beyond this is cut on the way out: gRPC turns any status whose headers pass 8 KB into
// RESOURCE_EXHAUSTED, and the header limit is shared by all metadata.
inline constexpr size_t kMaxStatusTextBytes = 1024;
// Details beyond this are left out, for the same reason.
inline constexpr size_t kMaxErrorDetailsBytes = 2048;

grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that does not exist becomes UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_STATUS_CONVERSION_H_
