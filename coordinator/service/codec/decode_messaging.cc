#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/codec/field_checks.h"

namespace cohort::coordinator {
namespace {

constexpr absl::Duration kDefaultObjectWait = absl::Seconds(300);
constexpr size_t kMaxRefusalCharacters = 1024;
constexpr absl::Duration kDefaultBarrierWait = absl::Seconds(30);

// The shared part of the round calls.
absl::Status DecodeRound(RoundKind kind, v1::Round& round, absl::Duration default_wait,
                         const DecodeContext& context, EnterRoundCall* body, Call* call) {
  body->kind = kind;
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("round.name", round.name()));
  COHORT_RETURN_IF_ERROR(CheckRoundNumber("round.number", round.number()));
  COHORT_RETURN_IF_ERROR(CheckBytes("round.digest", round.digest(), kMaxDigestBytes));
  COHORT_RETURN_IF_ERROR(
      DecodeRanges("round.participants", round.participants(), context, &body->participants));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(round.has_wait(), round.wait(), default_wait, context, &call->wait));
  body->name = std::move(*round.mutable_name());
  body->number = round.number();
  body->digest = std::move(*round.mutable_digest());
  COHORT_RETURN_IF_ERROR(
      CleanText("round.refusal", round.mutable_refusal(), kMaxRefusalCharacters));
  body->refusal = std::move(*round.mutable_refusal());
  return absl::OkStatus();
}

absl::Status DecodeOnePayload(v1::Payload& payload, const DecodeContext& context,
                              EnterRoundCall* body) {
  return DecodePayload("payload", payload, context, &body->values.emplace_back());
}

// Decodes the root's values for all. Inline values are cut here; the values of a blob later, when
// the blob is known.
absl::Status DecodeValues(v1::Values& values, const DecodeContext& context, EnterRoundCall* body) {
  if (values.sizes_bytes_size() < 1 || values.sizes_bytes_size() > context.limits.max_members) {
    return InvalidField("values.sizes_bytes", absl::StrCat("must say where values are cut: 1 to ",
                                                           context.limits.max_members, " sizes"));
  }
  for (int64_t size : values.sizes_bytes()) {
    if (size < 0) return InvalidField("values.sizes_bytes", "must not be negative");
  }
  if (values.has_blob()) {
    if (!values.inline_().empty()) return InvalidField("values", "has both inline values and a blob");
    if (values.blob().blob() <= 0) return InvalidField("values.blob.blob", "must be positive");
    body->sizes.assign(values.sizes_bytes().begin(), values.sizes_bytes().end());
    Value& value = body->values.emplace_back();
    value.blob = values.blob().blob();
    value.present = true;
    return absl::OkStatus();
  }
  const std::string& bytes = values.inline_();
  COHORT_RETURN_IF_ERROR(CheckInlineSize("values.inline", bytes.size(), context));
  body->values.reserve(values.sizes_bytes_size());
  size_t offset = 0;
  for (int64_t size : values.sizes_bytes()) {
    if (static_cast<uint64_t>(size) > bytes.size() - offset) break;
    Value& value = body->values.emplace_back();
    value.bytes = bytes.substr(offset, size);
    value.present = true;
    offset += size;
  }
  if (offset != bytes.size() || static_cast<int>(body->values.size()) != values.sizes_bytes_size()) {
    return InvalidField("values.sizes_bytes",
                        absl::StrCat("do not add up to the ", bytes.size(), " bytes inline"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Decode(v1::SendRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckRank("destination", request.destination(), context));
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("tag", request.tag()));
  auto& body = call->body.emplace<SendCall>();
  COHORT_RETURN_IF_ERROR(
      DecodePayload("payload", *request.mutable_payload(), context, &body.value));
  if (request.has_expiration()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("expiration", request.expiration(), absl::ZeroDuration(),
                                          kMaxExpiration, &body.expiration.emplace()));
  }
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultObjectWait, context, &call->wait));
  body.destination = request.destination();
  body.tag = std::move(*request.mutable_tag());
  body.wait_consumed = request.wait_consumed();
  COHORT_RETURN_IF_ERROR(CheckRoundNumber("order", request.order()));
  body.order = request.order();
  return absl::OkStatus();
}

absl::Status Decode(v1::ReceiveRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("tag", request.tag()));
  auto& body = call->body.emplace<ReceiveCall>();
  if (request.has_source()) {
    COHORT_RETURN_IF_ERROR(CheckRank("source", request.source(), context));
    body.source = request.source();
  }
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultObjectWait, context, &call->wait));
  body.tag = std::move(*request.mutable_tag());
  return absl::OkStatus();
}

absl::Status Decode(v1::BroadcastRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<EnterRoundCall>();
  COHORT_RETURN_IF_ERROR(DecodeRound(RoundKind::kBroadcast, *request.mutable_round(),
                                     kDefaultObjectWait, context, &body, call));
  body.root = request.root();
  body.wait_consumed = request.wait_consumed();
  if (request.has_payload()) {
    COHORT_RETURN_IF_ERROR(DecodeOnePayload(*request.mutable_payload(), context, &body));
  }
  return absl::OkStatus();
}

absl::Status Decode(v1::AllGatherRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<EnterRoundCall>();
  COHORT_RETURN_IF_ERROR(DecodeRound(RoundKind::kAllGather, *request.mutable_round(),
                                     kDefaultObjectWait, context, &body, call));
  COHORT_RETURN_IF_ERROR(DecodeOnePayload(*request.mutable_payload(), context, &body));
  return absl::OkStatus();
}

absl::Status Decode(v1::GatherRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<EnterRoundCall>();
  COHORT_RETURN_IF_ERROR(DecodeRound(RoundKind::kGather, *request.mutable_round(),
                                     kDefaultObjectWait, context, &body, call));
  COHORT_RETURN_IF_ERROR(DecodeOnePayload(*request.mutable_payload(), context, &body));
  body.root = request.root();
  return absl::OkStatus();
}

absl::Status Decode(v1::ScatterRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<EnterRoundCall>();
  COHORT_RETURN_IF_ERROR(DecodeRound(RoundKind::kScatter, *request.mutable_round(),
                                     kDefaultObjectWait, context, &body, call));
  if (request.has_values()) {
    COHORT_RETURN_IF_ERROR(DecodeValues(*request.mutable_values(), context, &body));
  }
  body.root = request.root();
  body.wait_consumed = request.wait_consumed();
  return absl::OkStatus();
}

absl::Status Decode(v1::BarrierRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<EnterRoundCall>();
  COHORT_RETURN_IF_ERROR(DecodeRound(RoundKind::kBarrier, *request.mutable_round(),
                                     kDefaultBarrierWait, context, &body, call));
  return absl::OkStatus();
}

absl::Status Decode(v1::CancelBarrierRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("name", request.name()));
  COHORT_RETURN_IF_ERROR(CheckRoundNumber("number", request.number()));
  COHORT_RETURN_IF_ERROR(CleanText("reason", request.mutable_reason(), kMaxReasonCharacters));
  call->body = CancelRoundCall{std::move(*request.mutable_name()), request.number(),
                               std::move(*request.mutable_reason())};
  return absl::OkStatus();
}

absl::Status Decode(v1::ExpireRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<ExpireCall>();
  if (request.has_older_than()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("older_than", request.older_than(), absl::ZeroDuration(),
                                          kMaxExpiration, &body.older_than.emplace()));
  }
  return absl::OkStatus();
}

absl::Status Decode(v1::StatsRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  call->body = StatsCall{};
  return absl::OkStatus();
}

absl::Status Decode(v1::UploadRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNotNegative("size_bytes", request.size_bytes()));
  if (request.size_bytes() > context.limits.max_object_bytes) {
    return OverLimit(absl::StrCat("group ", request.scope().group(), ": size_bytes"),
                     request.size_bytes(), "max_object_bytes", context.limits.max_object_bytes);
  }
  call->body = PutBlobCall{};
  return absl::OkStatus();
}

absl::Status Decode(v1::DownloadRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  if (request.blob() <= 0) return InvalidField("blob", "must be positive");
  COHORT_RETURN_IF_ERROR(CheckNotNegative("offset", request.offset()));
  call->body = GetBlobCall{request.blob(), request.offset()};
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
