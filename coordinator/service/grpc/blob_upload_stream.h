// Receives a blob in parts, checks it, and gives it to the state machine as a whole.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_BLOB_UPLOAD_STREAM_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_BLOB_UPLOAD_STREAM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "cohort/v1/messaging.pb.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/tenant_stream.h"
#include "coordinator/service/engine/reply_sink.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Owns itself until OnDone. Reads one part at a time, so that flow control slows a fast client
// down.
class BlobUploadStream final : public grpc::ServerReadReactor<grpc::ByteBuffer>, private ReplySink {
 public:
  static grpc::ServerReadReactor<grpc::ByteBuffer>* Start(Dispatcher& dispatcher,
                                                          grpc::CallbackServerContext* context,
                                                          grpc::ByteBuffer* response);

 private:
  BlobUploadStream(Dispatcher& dispatcher, grpc::CallbackServerContext* context,
                   grpc::ByteBuffer* response);

  absl::Status TakeFirst(v1::UploadRequest& part);
  absl::Status TakePart();
  absl::Status CheckWhole() const;
  // Whether the tenant may hold `bytes` more for uploads.
  absl::Status CheckTenantRoom(int64_t bytes);
  // Whether `bytes_` may grow by `more`; charges the memory that it then has.
  absl::Status Reserve(int64_t more);
  void Complete(const absl::Status& status);

  void OnReadDone(bool ok) override;
  void OnReply(Reply&& reply, DeliveryContext& context) override;
  void OnDone() override;

  Dispatcher& dispatcher_;
  const Instant started_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  grpc::ByteBuffer part_;
  Asker asker_;
  Call call_;
  bool begun_ = false;
  std::string bytes_;
  int64_t size_bytes_ = 0;  // as announced
  uint32_t announced_crc32_ = 0;
  uint32_t crc32_ = 0;  // of `bytes_`
  TenantStream tenant_stream_;  // outlives the charges
  SharedCharge charge_;
  SharedCharge held_;  // `bytes_`, until the state machine has them
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_BLOB_UPLOAD_STREAM_H_
