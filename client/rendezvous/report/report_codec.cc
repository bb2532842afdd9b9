#include "client/rendezvous/report/report_codec.h"

#include <string>
#include <utility>

#include "absl/status/status_payload_printer.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/error_ranks.h"
#include "base/rpc/status_conversion.h"

namespace cohort::client {
namespace {

// The longest google.protobuf.Duration.
constexpr int64_t kMaxSeconds = 315576000000;
// Their bytes and a cause's are below kMaxErrorDetailsBytes.
constexpr size_t kMaxMissingRanges = 64;

}  // namespace

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

void ToProto(absl::Duration duration, google::protobuf::Duration* out) {
  absl::Duration rest;
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &rest);
  if (seconds > kMaxSeconds) {
    out->set_seconds(kMaxSeconds);
    out->set_nanos(0);
    return;
  }
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

Cause FromProto(const v1::Cause& cause) {
  Cause result;
  if (v1::CauseKind_IsValid(cause.kind())) result.kind = static_cast<CauseKind>(cause.kind());
  result.member = cause.member();
  if (cause.has_rank()) result.rank = cause.rank();
  result.host = cause.host();
  result.detail = cause.detail();
  result.generation = cause.generation();
  result.age = FromProto(cause.age());
  return result;
}

MissingReport FromProto(const v1::MissingReport& report) {
  MissingReport result;
  result.expected_count = report.expected_count();
  result.arrived_count = report.arrived_count();
  result.arrived = RangesFromProto(report.arrived());
  result.missing = RangesFromProto(report.missing());
  for (const v1::MissingMember& member : report.details()) {
    MissingMember& added = result.details.emplace_back();
    added.rank = member.rank();
    added.member = member.member();
    added.host = member.host();
    if (member.has_last_heard()) added.last_heard = FromProto(member.last_heard());
    added.attached = member.attached();
    added.last_operation = member.last_operation();
    added.last_operation_age = FromProto(member.last_operation_age());
    added.progress = member.progress();
    added.progress_operation = member.progress_operation();
    added.progress_age = FromProto(member.progress_age());
  }
  if (report.has_first_rank()) result.first_rank = report.first_rank();
  if (report.has_last_rank()) result.last_rank = report.last_rank();
  result.since_first = FromProto(report.since_first());
  result.skew = FromProto(report.skew());
  return result;
}

Member FromProto(const v1::Member& member) {
  Member result;
  result.name = member.name();
  result.incarnation_hash = member.incarnation_hash();
  result.rank = member.rank();
  if (member.state() != v1::MEMBER_STATE_UNSPECIFIED && v1::MemberState_IsValid(member.state())) {
    result.state = static_cast<MemberState>(member.state());
  }
  result.host = member.host();
  result.addresses.assign(member.addresses().begin(), member.addresses().end());
  result.labels.insert(member.labels().begin(), member.labels().end());
  result.last_heard = FromProto(member.last_heard());
  result.attached = member.attached();
  result.progress = member.progress();
  result.progress_operation = member.progress_operation();
  result.progress_age = FromProto(member.progress_age());
  return result;
}

ViewProposal FromProto(const v1::ViewProposal& proposal) {
  ViewProposal result;
  result.id = proposal.proposal();
  result.proposer = proposal.proposer();
  result.base_generation = proposal.base_generation();
  result.remove = RangesFromProto(proposal.remove());
  result.add.assign(proposal.add().begin(), proposal.add().end());
  result.world_size = proposal.world_size();
  return result;
}

GroupState FromProto(v1::GroupState state) {
  if (state == v1::GROUP_STATE_UNSPECIFIED || !v1::GroupState_IsValid(state)) {
    return GroupState::kForming;
  }
  return static_cast<GroupState>(state);
}

GroupInfo FromProto(const v1::Group& group) {
  GroupInfo result;
  result.name = group.name();
  result.generation = group.generation();
  result.state = FromProto(group.state());
  result.min_members = group.spec().min_members();
  result.max_members = group.spec().max_members();
  result.world_size = group.world_size();
  result.revision = group.revision();
  result.lease = FromProto(group.spec().lease());
  result.members.reserve(group.members_size());
  for (const v1::Member& member : group.members()) result.members.push_back(FromProto(member));
  result.cause = FromProto(group.cause());
  result.bytes_held = group.bytes_held();
  result.waiter_count = group.waiter_count();
  return result;
}

GroupInfo FromProto(const v1::GetGroupResponse& response) {
  GroupInfo result = FromProto(response.group());
  if (response.has_proposal()) result.proposal = FromProto(response.proposal());
  return result;
}

GroupEvent FromProto(const v1::GroupEvent& event) {
  GroupEvent result;
  result.revision = event.revision();
  if (event.kind() != v1::GROUP_EVENT_KIND_UNSPECIFIED &&
      v1::GroupEventKind_IsValid(event.kind())) {
    result.kind = static_cast<EventKind>(event.kind());
  }
  result.generation = event.generation();
  result.member = event.member();
  if (event.has_rank()) result.rank = event.rank();
  result.cause = FromProto(event.cause());
  if (event.has_proposal()) result.proposal = FromProto(event.proposal());
  return result;
}

namespace {

TensorOperation FromProto(const v1::TensorOperation& operation) {
  TensorOperation result;
  result.generation = operation.generation();
  result.number = operation.number();
  result.collective = FindCollective(operation.collective());
  result.state = operation.state();
  result.peer = operation.peer();
  result.begun = client::FromProto(operation.begun());
  if (operation.has_ended()) result.ended = client::FromProto(operation.ended());
  return result;
}

void ToProto(const TensorOperation& operation, v1::TensorOperation* out) {
  out->set_generation(operation.generation);
  out->set_number(operation.number);
  out->set_collective(NameOf(operation.collective).data());
  out->set_state(operation.state);
  out->set_peer(operation.peer);
  client::ToProto(operation.begun, out->mutable_begun());
  if (operation.ended.has_value()) client::ToProto(*operation.ended, out->mutable_ended());
}

}  // namespace

TensorReport FromProto(const v1::TensorReport& report) {
  TensorReport result;
  result.moves_tensors = report.moves_tensors();
  if (report.has_last()) result.last = FromProto(report.last());
  if (report.has_open()) result.open = FromProto(report.open());
  result.waits_for = RangesFromProto(report.waits_for());
  return result;
}

void ToProto(const TensorReport& report, v1::TensorReport* out) {
  out->set_moves_tensors(report.moves_tensors);
  if (report.last.has_value()) ToProto(*report.last, out->mutable_last());
  if (report.open.has_value()) ToProto(*report.open, out->mutable_open());
  RangesToProto(report.waits_for, out->mutable_waits_for());
}

WhoIsMissingReport FromProto(const v1::WhoIsMissingResponse& response) {
  WhoIsMissingReport result;
  result.group = response.group();
  result.generation = response.generation();
  result.state = FromProto(response.state());
  result.cause = FromProto(response.cause());
  result.world_size = response.world_size();
  for (const v1::OpenWait& wait : response.waits()) {
    result.waits.push_back({wait.operation(), FromProto(wait.missing()), FromProto(wait.age()),
                            FromProto(wait.remaining())});
  }
  for (const v1::InitStatus& init : response.inits()) {
    InitStatus& added = result.inits.emplace_back();
    added.name = init.name();
    for (const v1::InitRank& rank : init.ranks()) {
      added.ranks.push_back(
          {rank.rank(), rank.member(), rank.phase(), rank.detail(), FromProto(rank.age())});
    }
  }
  result.covers_tensors = response.covers_tensors();
  for (const v1::TensorWait& wait : response.tensor_waits()) {
    result.tensor_waits.push_back({wait.operation(), FromProto(wait.missing()),
                                   FromProto(wait.age()), RangesFromProto(wait.inside()),
                                   RangesFromProto(wait.waited_for()), wait.mismatch()});
  }
  for (const v1::RankReport& rank : response.ranks()) {
    RankReport& added = result.ranks.emplace_back();
    added.rank = rank.rank();
    added.member = rank.member();
    added.host = rank.host();
    if (rank.has_last_heard()) added.last_heard = FromProto(rank.last_heard());
    if (rank.has_reported()) added.reported = FromProto(rank.reported());
    added.tensors = FromProto(rank.tensors());
  }
  result.unanswered = RangesFromProto(response.unanswered());
  result.unknown = RangesFromProto(response.unknown());
  return result;
}

ParkedCall FromProto(const v1::ParkedCall& call) {
  ParkedCall result;
  result.group = call.group();
  result.member = call.member();
  result.rank = call.rank();
  result.operation = call.operation();
  result.age = FromProto(call.age());
  result.remaining = FromProto(call.remaining());
  result.waits_on = RangesFromProto(call.waits_on());
  return result;
}

std::string CauseText(const v1::Cause& cause) {
  std::string text = absl::StrCat("generation ", cause.generation(), ": ");
  if (!cause.member().empty()) absl::StrAppend(&text, "member ", cause.member(), " ");
  if (cause.has_rank()) absl::StrAppend(&text, "(rank ", cause.rank(), ") ");
  if (!cause.host().empty()) absl::StrAppend(&text, "on ", cause.host(), " ");
  absl::StrAppend(&text, CauseKindName(FromProto(cause).kind));
  if (!cause.detail().empty()) absl::StrAppend(&text, ": ", cause.detail().substr(0, 512));
  return text;
}

namespace {

// Absent if the status has none.
absl::optional<v1::ErrorDetails> DetailsOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorDetailsUrl);
  v1::ErrorDetails details;
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) return absl::nullopt;
  return details;
}

// Details that the status's text may lack; absent if the payload is of another library.
absl::optional<std::string> DetailsText(absl::string_view url, const absl::Cord& payload) {
  v1::ErrorDetails details;
  if (url != kErrorDetailsUrl || !details.ParseFromString(std::string(payload))) {
    return absl::nullopt;
  }
  std::vector<std::string> parts;
  if (!details.group().empty()) parts.push_back(absl::StrCat("group ", details.group()));
  if (details.current_generation() != 0) {
    parts.push_back(absl::StrCat("generation ", details.current_generation()));
  }
  if (!details.operation().empty()) parts.push_back(details.operation());
  if (details.cause().kind() != v1::CAUSE_KIND_UNSPECIFIED) {
    parts.push_back(absl::StrCat("cause: ", CauseText(details.cause())));
  } else if (details.cause().has_rank()) {
    parts.push_back(absl::StrCat("culprit: rank ", details.cause().rank()));
  }
  if (details.missing_size() > 0) {
    parts.push_back(absl::StrCat("missing: ", NameRanks(RangesFromProto(details.missing()))));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace

void PrintErrorDetailsAsText() {
  static const bool done = [] {
    // This is Abseil's only extension point for it; without it, the bytes are printed.
    using absl::status_internal::GetStatusPayloadPrinter;
    if (GetStatusPayloadPrinter() == nullptr) {
      absl::status_internal::SetStatusPayloadPrinter(&DetailsText);
    }
    return true;
  }();
  (void)done;
}

v1::ErrorDetails MakeErrorDetails(absl::string_view group, int64_t current_generation,
                                  absl::string_view operation) {
  v1::ErrorDetails details;
  details.set_group(std::string(group));
  details.set_current_generation(current_generation);
  details.set_operation(std::string(operation));
  return details;
}

absl::Status StatusWithDetails(absl::StatusCode code, absl::string_view text,
                               const v1::ErrorDetails& details) {
  absl::Status status(code, text.substr(0, kMaxStatusTextBytes));
  status.SetPayload(kErrorDetailsUrl, absl::Cord(details.SerializeAsString()));
  return status;
}

absl::Status WithRanksInDetails(absl::Status status) {
  std::vector<RankRange> missing = MissingRanksOf(status);
  const std::optional<int> culprit = CulpritOf(status);
  if (missing.empty() && !culprit.has_value()) return status;
  v1::ErrorDetails details = DetailsOf(status).value_or(v1::ErrorDetails());
  if (missing.size() > kMaxMissingRanges) missing.resize(kMaxMissingRanges);
  RangesToProto(missing, details.mutable_missing());
  if (culprit.has_value() && !details.has_cause()) details.mutable_cause()->set_rank(*culprit);
  status.SetPayload(kErrorDetailsUrl, absl::Cord(details.SerializeAsString()));
  return status;
}

ErrorInfo GetErrorInfo(const absl::Status& status) {
  ErrorInfo info;
  if (const absl::optional<v1::ErrorDetails> details = DetailsOf(status)) {
    info.group = details->group();
    info.current_generation = details->current_generation();
    info.operation = details->operation();
    info.cause = FromProto(details->cause());
    info.missing = RangesFromProto(details->missing());
  }
  if (info.missing.empty()) info.missing = MissingRanksOf(status);
  if (!info.cause.rank.has_value()) info.cause.rank = CulpritOf(status);
  return info;
}

}  // namespace cohort::client
