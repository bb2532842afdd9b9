// Streams a blob in parts, from the memory that keeps it.
#ifndef COHORT_COORDINATOR_SERVICE_GRPC_BLOB_DOWNLOAD_STREAM_H_
#define COHORT_COORDINATOR_SERVICE_GRPC_BLOB_DOWNLOAD_STREAM_H_

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/dispatch/tenant_stream.h"
#include "coordinator/service/engine/reply_sink.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::coordinator {

// Owns itself until OnDone.
class BlobDownloadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                                 private ReplySink {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(Dispatcher& dispatcher,
                                                           grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request);

 private:
  explicit BlobDownloadStream(Dispatcher& dispatcher);

  void Begin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request);
  void Open(std::shared_ptr<const BlobContent> content);
  void WriteNext();
  void Complete(const absl::Status& status);

  void OnReply(Reply&& reply, DeliveryContext& context) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  Dispatcher& dispatcher_;
  const Instant started_;
  Asker asker_;
  int64_t blob_ = 0;
  int64_t offset_ = 0;  // of the next part
  std::shared_ptr<const BlobContent> content_;
  size_t part_ = 0;          // the value that `offset_` lies in
  int64_t part_offset_ = 0;  // ... and where
  grpc::ByteBuffer message_;
  TenantStream tenant_stream_;  // outlives the charge
  SharedCharge charge_;         // the content is charged where it came from
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_GRPC_BLOB_DOWNLOAD_STREAM_H_
