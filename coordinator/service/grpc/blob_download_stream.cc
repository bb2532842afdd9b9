#include "coordinator/service/grpc/blob_download_stream.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "cohort/v1/messaging.pb.h"
#include "coordinator/service/grpc/byte_buffer.h"
#include "coordinator/service/grpc/caller_access.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace cohort::coordinator {
namespace {

constexpr int64_t kPartBytes = 512 << 10;

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* BlobDownloadStream::Start(
    Dispatcher& dispatcher, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  auto* const stream = new BlobDownloadStream(dispatcher);
  stream->Begin(context, request);
  return stream;
}

BlobDownloadStream::BlobDownloadStream(Dispatcher& dispatcher)
    : dispatcher_(dispatcher),
      started_(dispatcher.OnStarted(Method::kDownload)),
      charge_(dispatcher.engine().account(), MemoryKind::kCalls, Dispatcher::kRpcCost) {}

void BlobDownloadStream::Begin(grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer* request) {
  Call call;
  const std::shared_ptr<PeerAccess> access = AccessOf(dispatcher_, *context);
  absl::Status status = absl::InternalError("the request could not be read");
  {
    grpc::ByteBuffer copy(*request);
    grpc::ProtoBufferReader reader(&copy);
    if (reader.status().ok()) {
      status = dispatcher_.Decode(Method::kDownload, access.get(), &reader, copy.Length(),
                                  TimeLeft(context->raw_deadline()), &call, &asker_);
    }
  }
  dispatcher_.CountRequest(access.get(), call.caller, TenantRates::kGrpcRequest, 0);
  if (status.ok()) status = tenant_stream_.Begin(dispatcher_.engine(), call.caller.key.tenant);
  if (!status.ok()) return Complete(status);
  charge_.MoveTo(tenant_stream_.account());
  blob_ = std::get<GetBlobCall>(call.body).blob;
  offset_ = std::get<GetBlobCall>(call.body).offset;
  if (!OutgoingBlobs::IsOutgoing(blob_)) {
    // Never parked, so a cancelled caller need not be looked after here.
    dispatcher_.engine().Submit(std::move(call), this);
    return;
  }
  auto content = dispatcher_.blobs().Find(dispatcher_.engine().clock().Now(), asker_.key,
                                          asker_.session, blob_);
  if (!content.ok()) return Complete(content.status());
  Open(*std::move(content));
}

void BlobDownloadStream::OnReply(Reply&& reply, DeliveryContext& context) {
  auto* const found = std::get_if<GetBlobReply>(&reply.body);
  if (!reply.status.ok() || found == nullptr) {
    return Complete(reply.status.ok() ? absl::InternalError("the answer to a download is no blob")
                                      : EncodeStatus(reply, context.now));
  }
  auto content = std::make_shared<BlobContent>();
  content->size_bytes = found->payload.size();
  content->parts.push_back(std::move(found->payload));
  Open(std::move(content));
}

void BlobDownloadStream::Open(std::shared_ptr<const BlobContent> content) {
  if (offset_ > content->size_bytes) {
    return Complete(absl::OutOfRangeError("offset: is behind the end of the blob"));
  }
  content_ = std::move(content);
  part_offset_ = offset_;
  while (part_ < content_->parts.size() && part_offset_ >= content_->parts[part_].size()) {
    part_offset_ -= content_->parts[part_++].size();
  }
  WriteNext();
}

void BlobDownloadStream::WriteNext() {
  if (offset_ >= content_->size_bytes) {
    dispatcher_.blobs().Downloaded(blob_);
    return Complete(absl::OkStatus());
  }
  const Payload& payload = content_->parts[part_];
  const int64_t size = std::min(kPartBytes, payload.size() - part_offset_);
  v1::DownloadResponse head;
  head.set_offset(offset_);
  MessageBytes message;
  // The `data` field by hand, so that its bytes are not copied.
  std::string header = head.SerializeAsString();
  AppendFieldHeader(v1::DownloadResponse::kDataFieldNumber, static_cast<size_t>(size), &header);
  message.Append(std::move(header));
  message.AppendShared(content_,
                       absl::string_view(payload.bytes())
                           .substr(static_cast<size_t>(part_offset_), static_cast<size_t>(size)));
  offset_ += size;
  part_offset_ += size;
  while (part_ < content_->parts.size() && part_offset_ >= content_->parts[part_].size()) {
    part_offset_ = 0;
    ++part_;
  }
  message_ = ToByteBuffer(message);
  StartWrite(&message_);
}

void BlobDownloadStream::OnWriteDone(bool ok) {
  message_.Clear();
  if (!ok) return Complete(absl::CancelledError("the caller went away"));
  WriteNext();
}

void BlobDownloadStream::Complete(const absl::Status& status) {
  dispatcher_.OnHandled(Method::kDownload, status.code(), started_);
  Finish(ToGrpcStatus(status));
}

void BlobDownloadStream::OnDone() {
  Dispatcher& dispatcher = dispatcher_;
  delete this;
  dispatcher.OnGone();
}

}  // namespace cohort::coordinator
