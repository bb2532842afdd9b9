#include "base/framed_rpc/server/server_protocol.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"

namespace cohort::framed_rpc {

ServerProtocol::ServerProtocol(std::vector<std::string> methods, size_t max_message_bytes)
    : methods_(std::move(methods)), max_message_bytes_(max_message_bytes), greeting_(kPreface) {
  std::string names;
  for (const std::string& method : methods_) absl::StrAppend(&names, method, "\n");
  Header header;
  header.kind = Kind::kHello;
  header.body_bytes = static_cast<uint32_t>(names.size());
  AppendHeader(header, &greeting_);
  greeting_ += names;
}

absl::Status ServerProtocol::CheckMethod(uint16_t number) const {
  if (number < methods_.size()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("no method ", number));
}

absl::Status ServerProtocol::TooLarge(const Frame& frame) const {
  return absl::ResourceExhaustedError(absl::StrCat("a request of ", frame.header.body_bytes,
                                                   " bytes is over max_message_bytes (",
                                                   max_message_bytes_, ")"));
}

Header MakeReplyHeader(uint32_t call, const absl::Status& status, size_t message_bytes,
                       std::string* error) {
  Header header;
  header.call = call;
  header.kind = Kind::kReply;
  header.code = static_cast<uint8_t>(status.code());
  if (status.ok()) {
    header.body_bytes = static_cast<uint32_t>(message_bytes);
    return header;
  }
  // Cut like gRPC's texts: the same call gets the same answer on both paths.
  const grpc::Status cut = ToGrpcStatus(status);
  *error = absl::StrCat(cut.error_message(), cut.error_details());
  header.extra = static_cast<uint32_t>(cut.error_message().size());
  header.body_bytes = static_cast<uint32_t>(error->size());
  return header;
}

}  // namespace cohort::framed_rpc
