// Between gRPC's byte buffers and ours.
#ifndef COHORT_COORDINATOR_SERVICE_BYTE_BUFFER_H_
#define COHORT_COORDINATOR_SERVICE_BYTE_BUFFER_H_

#include "coordinator/service/codec/message_bytes.h"
#include "grpcpp/support/byte_buffer.h"

namespace cohort::coordinator {

// Large pieces are shared with `message`, not copied; gRPC frees them when they are on their way.
grpc::ByteBuffer ToByteBuffer(const MessageBytes& message);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_BYTE_BUFFER_H_
