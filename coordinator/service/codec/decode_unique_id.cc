#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/codec/field_checks.h"

namespace cohort::coordinator {
namespace {

constexpr int kMaxIds = 64;
constexpr size_t kMaxIdBytes = 256;
constexpr absl::Duration kDefaultFetchWait = absl::Seconds(300);

}  // namespace

absl::Status Decode(v1::PublishRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("name", request.name()));
  if (request.ids_size() < 1 || request.ids_size() > kMaxIds) {
    return InvalidField("ids", "needs 1 to 64");
  }
  for (const std::string& id : request.ids()) {
    if (id.empty() || id.size() > kMaxIdBytes)
      return InvalidField("ids", "must have 1 to 256 bytes");
  }
  auto& body = call->body.emplace<PublishIdsCall>();
  body.name = std::move(*request.mutable_name());
  body.ids.assign(std::make_move_iterator(request.mutable_ids()->begin()),
                  std::make_move_iterator(request.mutable_ids()->end()));
  return absl::OkStatus();
}

absl::Status Decode(v1::FetchRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("name", request.name()));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultFetchWait, context, &call->wait));
  call->body = FetchIdsCall{std::move(*request.mutable_name())};
  return absl::OkStatus();
}

absl::Status Decode(v1::ReportInitRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("name", request.name()));
  COHORT_RETURN_IF_ERROR(CleanText("detail", request.mutable_detail(), kMaxReasonCharacters));
  if (request.phase() == v1::INIT_PHASE_UNSPECIFIED || !v1::InitPhase_IsValid(request.phase())) {
    return InvalidField("phase", "is not known");
  }
  call->body = ReportInitCall{std::move(*request.mutable_name()),
                              static_cast<InitPhase>(request.phase()),  // the same numbers
                              std::move(*request.mutable_detail())};
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
