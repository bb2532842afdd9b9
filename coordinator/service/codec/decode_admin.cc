#include <utility>

#include "base/status_macros.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/codec/field_checks.h"

namespace cohort::coordinator {

absl::Status Decode(v1::WhoIsMissingRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  call->body = WhoIsMissingCall{request.ask()};
  return absl::OkStatus();
}

absl::Status Decode(v1::DumpWaitsRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  call->body = DumpWaitsCall{};
  return absl::OkStatus();
}

absl::Status Decode(v1::EvictRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("member", request.member()));
  COHORT_RETURN_IF_ERROR(CleanText("reason", request.mutable_reason(), kMaxReasonCharacters));
  call->body =
      EvictCall{std::move(*request.mutable_member()), std::move(*request.mutable_reason())};
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
