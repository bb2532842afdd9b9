#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/codec/decode_tensor_report.h"
#include "coordinator/service/codec/field_checks.h"

namespace cohort::coordinator {
namespace {

constexpr int kMaxAddresses = 16;
constexpr int kMaxLabels = 32;
constexpr size_t kMaxAddressCharacters = 256;
constexpr size_t kMaxErrorCharacters = 1024;
// A quiet watch gets a bookmark this often.
constexpr absl::Duration kBookmarkPeriod = absl::Seconds(10);
constexpr absl::Duration kDefaultJoinWait = absl::Seconds(300);
constexpr absl::Duration kDefaultStepWait = absl::Seconds(30);


using LabelsMessage = google::protobuf::Map<std::string, std::string>;

absl::Status DecodeLabels(absl::string_view field, const LabelsMessage& message,
                          std::map<std::string, std::string>* labels) {
  if (message.size() > kMaxLabels) {
    return InvalidField(field, absl::StrCat("more than ", kMaxLabels, " labels"));
  }
  for (const auto& [message_name, message_value] : message) {
    std::string name = message_name;
    std::string value = message_value;
    if (name.empty()) return InvalidField(field, "a label has no name");
    COHORT_RETURN_IF_ERROR(CleanText(field, &name, 128));
    COHORT_RETURN_IF_ERROR(CleanText(field, &value, 256));
    const auto [label, is_new] = labels->emplace(std::move(name), std::move(value));
    if (!is_new) {
      return InvalidField(field, absl::StrCat("two names are shown alike: ", label->first));
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeSpec(const v1::GroupSpec& message, const DecodeContext& context,
                        GroupSpec* spec) {
  if (message.min_members() < 1) return InvalidField("spec.min_members", "must be at least 1");
  if (message.max_members() < message.min_members()) {
    return InvalidField("spec.max_members", "must not be below min_members");
  }
  if (message.max_members() > context.limits.max_members) {
    return OverLimit("spec.max_members", message.max_members(), "max_members", context.limits.max_members);
  }
  spec->min_members = message.min_members();
  spec->max_members = message.max_members();
  if (!v1::Fate_IsValid(message.fate())) return InvalidField("spec.fate", "is not known");
  spec->fate = message.fate() == v1::FATE_REPORT ? Fate::kReport : Fate::kShare;
  if (message.has_lease()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("spec.lease", message.lease(), absl::Milliseconds(50),
                                          absl::Hours(1), &spec->lease));
  }
  if (message.has_attached_lease()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("spec.attached_lease", message.attached_lease(),
                                          spec->lease, absl::Hours(24), &spec->attached_lease));
  }
  if (message.has_disconnect_grace()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("spec.disconnect_grace", message.disconnect_grace(),
                                          absl::ZeroDuration(), absl::Hours(1),
                                          &spec->disconnect_grace));
  }
  if (message.has_data_expiration()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("spec.data_expiration", message.data_expiration(),
                                          absl::Milliseconds(10), kMaxExpiration,
                                          &spec->data_expiration));
  }
  if (message.has_progress_timeout()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("spec.progress_timeout", message.progress_timeout(),
                                          absl::ZeroDuration(), absl::Hours(24),
                                          &spec->progress_timeout));
  }
  if (message.has_join_window()) {
    COHORT_RETURN_IF_ERROR(DecodeDuration("spec.join_window", message.join_window(),
                                          absl::ZeroDuration(), absl::Hours(1),
                                          &spec->join_window));
  }
  COHORT_RETURN_IF_ERROR(
      CheckBytes("spec.parameters_digest", message.parameters_digest(), kMaxDigestBytes));
  spec->parameters_digest = message.parameters_digest();
  return DecodeLabels("spec.labels", message.labels(), &spec->labels);
}

}  // namespace

absl::Status Decode(v1::CreateGroupRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  if (!request.has_spec()) return InvalidField("spec", "must be there");
  auto& body = call->body.emplace<CreateGroupCall>();
  COHORT_RETURN_IF_ERROR(DecodeSpec(request.spec(), context, &body.spec));
  return absl::OkStatus();
}

absl::Status Decode(v1::JoinRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("member", request.member()));
  if (request.incarnation() == 0) return InvalidField("incarnation", "must not be 0");
  COHORT_RETURN_IF_ERROR(CleanText("host", request.mutable_host(), kMaxAddressCharacters));
  if (request.addresses_size() > kMaxAddresses) {
    return InvalidField("addresses", absl::StrCat("more than ", kMaxAddresses));
  }
  for (std::string& address : *request.mutable_addresses()) {
    COHORT_RETURN_IF_ERROR(CleanText("addresses", &address, kMaxAddressCharacters));
  }
  auto& body = call->body.emplace<JoinCall>();
  if (request.has_rank()) {
    COHORT_RETURN_IF_ERROR(CheckRank("rank", request.rank(), context));
    body.rank = request.rank();
  }
  COHORT_RETURN_IF_ERROR(DecodeLabels("labels", request.labels(), &body.labels));
  if (request.has_spec()) {
    COHORT_RETURN_IF_ERROR(DecodeSpec(request.spec(), context, &body.spec.emplace()));
  }
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultJoinWait, context, &call->wait));
  body.member = std::move(*request.mutable_member());
  body.incarnation = request.incarnation();
  body.host = std::move(*request.mutable_host());
  body.addresses.assign(request.addresses().begin(), request.addresses().end());
  body.with_members = request.with_members();
  return absl::OkStatus();
}

absl::Status Decode(v1::LeaveRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CleanText("reason", request.mutable_reason(), kMaxReasonCharacters));
  call->body = LeaveCall{std::move(*request.mutable_reason())};
  return absl::OkStatus();
}

absl::Status Decode(v1::KeepAliveRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(
      CleanText("progress_operation", request.mutable_progress_operation(), 128));
  auto& body = call->body.emplace<KeepAliveCall>();
  body.progress = request.progress();
  body.progress_operation = std::move(*request.mutable_progress_operation());
  if (request.has_tensors()) {
    COHORT_RETURN_IF_ERROR(
        DecodeTensorReport(request.tensors(), context, &body.tensors.emplace()));
  }
  return absl::OkStatus();
}

absl::Status Decode(v1::GetGroupRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  call->body = GetGroupCall{};
  return absl::OkStatus();
}

absl::Status Decode(v1::ListGroupsRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("page_token", request.page_token()));
  auto& body = call->body.emplace<ListGroupsCall>();
  COHORT_RETURN_IF_ERROR(DecodePageSize("page_size", request.page_size(), &body.page_size));
  body.after = std::move(*request.mutable_page_token());
  return absl::OkStatus();
}

absl::Status Decode(v1::WatchGroupRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNotNegative("from_revision", request.from_revision()));
  if (request.attach() && call->caller.session.empty()) {
    return InvalidField("attach", "needs a session");
  }
  call->wait = std::min(kBookmarkPeriod, context.max_wait);
  call->body = WatchGroupCall{request.from_revision(), request.attach() && request.reports(),
                              request.attach()};
  return absl::OkStatus();
}

absl::Status Decode(v1::ProposeViewRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  auto& body = call->body.emplace<ProposeViewCall>();
  COHORT_RETURN_IF_ERROR(DecodeRanges("remove", request.remove(), context, &body.remove));
  if (request.add_size() > context.limits.max_candidates) {
    return OverLimit("add", request.add_size(), "max_candidates", context.limits.max_candidates);
  }
  for (const std::string& name : request.add()) COHORT_RETURN_IF_ERROR(CheckName("add", name));
  body.add.assign(request.add().begin(), request.add().end());
  if (!v1::SilentPolicy_IsValid(request.silent())) return InvalidField("silent", "is not known");
  body.drop_silent = request.silent() == v1::SILENT_POLICY_DROP;
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultStepWait, context, &call->wait));
  return absl::OkStatus();
}

absl::Status Decode(v1::AckViewRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  if (request.proposal() <= 0) return InvalidField("proposal", "must be positive");
  COHORT_RETURN_IF_ERROR(CleanText("reason", request.mutable_reason(), kMaxReasonCharacters));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultStepWait, context, &call->wait));
  call->body =
      AckViewCall{request.proposal(), request.refuse(), std::move(*request.mutable_reason())};
  return absl::OkStatus();
}

absl::Status Decode(v1::ReportErrorRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CleanText("detail", request.mutable_detail(), kMaxErrorCharacters));
  auto& body = call->body.emplace<ReportErrorCall>();
  COHORT_RETURN_IF_ERROR(DecodeRanges("suspected", request.suspected(), context, &body.suspected));
  body.detail = std::move(*request.mutable_detail());
  body.fatal = request.fatal();
  return absl::OkStatus();
}

absl::Status Decode(v1::AgreeAliveRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("name", request.name()));
  COHORT_RETURN_IF_ERROR(CheckRoundNumber("number", request.number()));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultStepWait, context, &call->wait));
  auto& body = call->body.emplace<EnterRoundCall>();
  body.kind = RoundKind::kAgreeAlive;
  body.name = request.name().empty() ? "alive" : request.name();
  body.number = request.number();
  return absl::OkStatus();
}

absl::Status Decode(v1::VoteRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("name", request.name()));
  COHORT_RETURN_IF_ERROR(CheckRoundNumber("number", request.number()));
  if (request.op() == v1::VOTE_OP_UNSPECIFIED || !v1::VoteOp_IsValid(request.op())) {
    return InvalidField("op", "is not known");
  }
  auto& body = call->body.emplace<EnterRoundCall>();
  COHORT_RETURN_IF_ERROR(
      DecodeRanges("participants", request.participants(), context, &body.participants));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), kDefaultStepWait, context, &call->wait));
  body.kind = RoundKind::kVote;
  body.name = std::move(*request.mutable_name());
  body.number = request.number();
  body.op = static_cast<VoteOp>(request.op());  // the same numbers; decode_test goes through them
  body.vote = request.value();
  return absl::OkStatus();
}

absl::Status Decode(v1::CloseGroupRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kRequired, &call->caller));
  COHORT_RETURN_IF_ERROR(CleanText("reason", request.mutable_reason(), kMaxReasonCharacters));
  call->body = CloseGroupCall{std::move(*request.mutable_reason())};
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
