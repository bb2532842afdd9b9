// Converts between gRPC's byte buffers and MessageBytes.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_BYTE_BUFFER_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_BYTE_BUFFER_H_

#include "coordinator/service/codec/message_bytes.h"
#include "grpcpp/support/byte_buffer.h"

namespace cohort::coordinator {

// Shares large pieces with `message` instead of copying them; gRPC frees them once they are sent.
grpc::ByteBuffer ToByteBuffer(const MessageBytes& message);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_BYTE_BUFFER_H_
