#include "coordinator/service/grpc/blob_upload_stream.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/memory/no_memory.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/grpc/byte_buffer.h"
#include "coordinator/service/grpc/caller_access.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kMaxPartBytes = 1 << 20;
// No more is set aside on the word of the caller alone.
constexpr int64_t kTrustedBytes = 4 << 20;

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* BlobUploadStream::Start(
    Dispatcher& dispatcher, grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  auto* const stream = new BlobUploadStream(dispatcher, context, response);
  stream->StartRead(&stream->part_);
  return stream;
}

BlobUploadStream::BlobUploadStream(Dispatcher& dispatcher, grpc::CallbackServerContext* context,
                                   grpc::ByteBuffer* response)
    : dispatcher_(dispatcher),
      started_(dispatcher.OnStarted(Method::kUpload)),
      context_(context),
      response_(response),
      charge_(dispatcher.engine().account(), MemoryKind::kCalls, Dispatcher::kRpcCost),
      held_(dispatcher.engine().account(), MemoryKind::kUploads) {}

void BlobUploadStream::OnReadDone(bool ok) {
  if (!ok) {  // the end of the parts, or of the call
    if (context_->IsCancelled()) return Complete(absl::CancelledError("the caller went away"));
    const absl::Status status = CheckWhole();
    if (!status.ok()) return Complete(status);
    Call call = std::move(call_);
    call.body = PutBlobCall{std::move(bytes_), crc32_};
    held_.Set(0);
    // Never parked, so a cancelled caller need not be looked after here.
    dispatcher_.engine().Submit(std::move(call), this);
    return;
  }
  const auto part_bytes = static_cast<int64_t>(part_.Length());
  const absl::Status status = WithMemory("cohort.v1.MessagingService/Upload", "a part", part_bytes,
                                         [this] { return TakePart(); });
  if (!status.ok()) return Complete(status);
  StartRead(&part_);
}

absl::Status BlobUploadStream::TakePart() {
  if (!begun_) {
    COHORT_RETURN_IF_ERROR(
        dispatcher_.AdmitAnywhere(Method::kUpload, AccessOf(dispatcher_, *context_).get()));
  }
  v1::UploadRequest part;
  {
    grpc::ProtoBufferReader reader(&part_);
    if (!reader.status().ok() || !part.ParseFromZeroCopyStream(&reader)) {
      return absl::InvalidArgumentError("a part is not a well-formed UploadRequest");
    }
  }
  part_.Clear();
  if (!begun_) COHORT_RETURN_IF_ERROR(TakeFirst(part));
  const std::string& data = part.data();
  if (data.size() > kMaxPartBytes) {
    return absl::InvalidArgumentError("data: a part has at most 1 MiB");
  }
  const int64_t have = static_cast<int64_t>(bytes_.size());
  if (part.offset() != have) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset: the next part starts at ", have, ", not at ", part.offset()));
  }
  if (have + static_cast<int64_t>(data.size()) > size_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: more than the announced ", size_bytes_, " bytes"));
  }
  COHORT_RETURN_IF_ERROR(Reserve(static_cast<int64_t>(data.size())));
  dispatcher_.CountRequest(AccessOf(dispatcher_, *context_).get(), call_.caller,
                           TenantRates::kGrpcRequest, static_cast<int64_t>(data.size()));
  crc32_ = static_cast<uint32_t>(
      crc32_z(crc32_, reinterpret_cast<const Bytef*>(data.data()), data.size()));
  bytes_.append(data);
  return absl::OkStatus();
}

absl::Status BlobUploadStream::TakeFirst(v1::UploadRequest& part) {
  const DecodeContext context = dispatcher_.MakeDecodeContext(absl::InfiniteDuration());
  COHORT_RETURN_IF_ERROR(Decode(part, context, &call_));
  const std::shared_ptr<PeerAccess> access = AccessOf(dispatcher_, *context_);
  COHORT_RETURN_IF_ERROR(dispatcher_.Admit(Method::kUpload, access.get(), &call_.caller));
  if (access != nullptr) {
    asker_.identity = call_.caller.identity;
    asker_.address = access->address();
  }
  asker_.key = call_.caller.key;
  asker_.session = call_.caller.session;
  begun_ = true;
  size_bytes_ = part.size_bytes();
  announced_crc32_ = part.crc32();
  COHORT_RETURN_IF_ERROR(tenant_stream_.Begin(dispatcher_.engine(), call_.caller.key.tenant));
  charge_.MoveTo(tenant_stream_.account());
  held_.MoveTo(tenant_stream_.account());
  // A value that does not fit is refused before the client sends it.
  COHORT_RETURN_IF_ERROR(CheckTenantRoom(size_bytes_));
  bytes_.reserve(static_cast<size_t>(std::min(size_bytes_, kTrustedBytes)));
  return absl::OkStatus();
}

absl::Status BlobUploadStream::CheckWhole() const {
  if (!begun_) return absl::InvalidArgumentError("an upload needs at least one part");
  if (static_cast<int64_t>(bytes_.size()) != size_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: ", bytes_.size(), " bytes came, ", size_bytes_, " were announced"));
  }
  if (crc32_ != announced_crc32_) {
    return absl::InvalidArgumentError("crc32: is not that of the bytes that came");
  }
  return absl::OkStatus();
}

absl::Status BlobUploadStream::CheckTenantRoom(int64_t bytes) {
  return CheckRoom(tenant_stream_.account(), MemoryKind::kUploads, bytes,
                   dispatcher_.engine().limits(), Share::kNew);
}

absl::Status BlobUploadStream::Reserve(int64_t more) {
  const auto size = static_cast<int64_t>(bytes_.size());
  const auto capacity = static_cast<int64_t>(bytes_.capacity());
  int64_t needed = capacity;
  if (size + more > capacity) needed = std::min(std::max(size + more, 2 * capacity), size_bytes_);
  if (needed > held_.bytes()) COHORT_RETURN_IF_ERROR(CheckTenantRoom(needed - held_.bytes()));
  COHORT_RETURN_IF_ERROR(WithMemory("cohort.v1.MessagingService/Upload", "an upload", size_bytes_,
                                    [&] {
                                      bytes_.reserve(static_cast<size_t>(needed));
                                      return absl::OkStatus();
                                    }));
  held_.Set(needed);
  return absl::OkStatus();
}

void BlobUploadStream::OnReply(Reply&& reply, DeliveryContext& context) {
  MessageBytes message;
  const absl::Status status = dispatcher_.Encode(Method::kUpload, reply, asker_, context, &message);
  if (status.ok()) *response_ = ToByteBuffer(message);
  Complete(status);
}

void BlobUploadStream::Complete(const absl::Status& status) {
  held_.Set(0);
  dispatcher_.OnHandled(Method::kUpload, status.code(), started_);
  Finish(ToGrpcStatus(status));
}

void BlobUploadStream::OnDone() {
  Dispatcher& dispatcher = dispatcher_;
  delete this;
  dispatcher.OnGone();
}

}  // namespace cohort::coordinator
