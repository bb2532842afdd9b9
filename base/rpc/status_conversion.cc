#include "base/rpc/status_conversion.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/text/utf8.h"

namespace cohort {
namespace {

constexpr absl::string_view kCutMark = " [cut]";

std::string CutText(absl::string_view text) {
  if (text.size() <= kMaxStatusTextBytes) return std::string(text);
  return absl::StrCat(CutUtf8(text, kMaxStatusTextBytes - kCutMark.size()), kCutMark);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The two enumerations have the same values by design of both libraries; the test goes through
  // all.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  std::string details;
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailsUrl);
  if (payload.has_value() && payload->size() <= kMaxErrorDetailsBytes) {
    details = std::string(*payload);
  }
  return grpc::Status(code, CutText(status.message()), details);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status result(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kErrorDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

}  // namespace cohort
