#include "coordinator/service/codec/encode_parts.h"

#include <algorithm>

namespace cohort::coordinator {
namespace {

// A copy of fewer bytes is cheaper than a piece of its own.
constexpr int64_t kCopyBytes = 4096;

void FillAllButValue(const KeyValue& key_value, v1::KeyValue* message) {
  message->set_key(key_value.key);
  message->set_revision(key_value.revision);
  message->set_created_revision(key_value.created_revision);
  if (key_value.expires_in.has_value()) {
    Fill(*key_value.expires_in, message->mutable_expires_in());
  }
}

}  // namespace

void Fill(absl::Duration duration, google::protobuf::Duration* message) {
  constexpr absl::Duration kLongest = absl::Seconds(315576000000);
  duration = std::min(std::max(duration, -kLongest), kLongest);
  message->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  message->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
}

void Fill(const std::vector<RankRange>& ranges, RangesMessage* message) {
  message->Reserve(static_cast<int>(ranges.size()));
  for (const RankRange& range : ranges) {
    v1::RankRange* out = message->Add();
    out->set_first(range.first);
    out->set_last(range.last);
  }
}

void Fill(const Cause& cause, Instant now, v1::Cause* message) {
  message->set_kind(static_cast<v1::CauseKind>(cause.kind));
  message->set_member(cause.member);
  if (cause.rank.has_value()) message->set_rank(*cause.rank);
  message->set_host(cause.host);
  message->set_detail(cause.detail);
  message->set_generation(cause.generation);
  // A cause from an earlier boot has no age.
  if (cause.at != Instant()) Fill(now - cause.at, message->mutable_age());
}

void Fill(const MissingReport& report, v1::MissingReport* message) {
  message->set_expected_count(report.expected_count);
  message->set_arrived_count(report.arrived_count);
  Fill(report.arrived, message->mutable_arrived());
  Fill(report.missing, message->mutable_missing());
  for (const MissingMember& missing : report.details) {
    v1::MissingMember* out = message->add_details();
    out->set_rank(missing.rank);
    out->set_member(missing.member);
    out->set_host(missing.host);
    if (missing.last_heard.has_value()) Fill(*missing.last_heard, out->mutable_last_heard());
    out->set_attached(missing.attached);
    if (!missing.last_operation.empty()) {
      out->set_last_operation(missing.last_operation);
      Fill(missing.last_operation_age, out->mutable_last_operation_age());
    }
    out->set_progress(missing.progress);
    out->set_progress_operation(missing.progress_operation);
    Fill(missing.progress_age, out->mutable_progress_age());
  }
  if (report.first_rank.has_value()) message->set_first_rank(*report.first_rank);
  if (report.last_rank.has_value()) message->set_last_rank(*report.last_rank);
  Fill(report.since_first, message->mutable_since_first());
  Fill(report.skew, message->mutable_skew());
}

void Fill(const ViewProposal& proposal, v1::ViewProposal* message) {
  message->set_proposal(proposal.id);
  message->set_proposer(proposal.proposer);
  message->set_base_generation(proposal.base_generation);
  Fill(proposal.remove, message->mutable_remove());
  for (const std::string& name : proposal.add) message->add_add(name);
  message->set_world_size(proposal.world_size);
}

void Fill(const MemberInfo& member, v1::Member* message) {
  message->set_name(member.name);
  message->set_incarnation_hash(member.incarnation_hash);
  message->set_rank(member.rank);
  message->set_state(static_cast<v1::MemberState>(member.state));
  message->set_host(member.host);
  for (const std::string& address : member.addresses) message->add_addresses(address);
  message->mutable_labels()->insert(member.labels.begin(), member.labels.end());
  Fill(member.last_heard, message->mutable_last_heard());
  message->set_attached(member.attached);
  message->set_progress(member.progress);
  message->set_progress_operation(member.progress_operation);
  Fill(member.progress_age, message->mutable_progress_age());
}

void Fill(const GroupSpec& spec, v1::GroupSpec* message) {
  message->set_min_members(spec.min_members);
  message->set_max_members(spec.max_members);
  message->set_fate(static_cast<v1::Fate>(spec.fate));
  Fill(spec.lease, message->mutable_lease());
  Fill(spec.AttachedLease(), message->mutable_attached_lease());
  Fill(spec.disconnect_grace, message->mutable_disconnect_grace());
  Fill(spec.data_expiration, message->mutable_data_expiration());
  Fill(spec.progress_timeout, message->mutable_progress_timeout());
  Fill(spec.join_window, message->mutable_join_window());
  message->set_parameters_digest(spec.parameters_digest);
  message->mutable_labels()->insert(spec.labels.begin(), spec.labels.end());
}

void Fill(const GroupInfo& group, Instant now, v1::Group* message) {
  message->set_name(group.name);
  message->set_generation(group.generation);
  message->set_state(static_cast<v1::GroupState>(group.state));
  Fill(group.spec, message->mutable_spec());
  message->set_world_size(group.world_size);
  message->set_revision(group.revision);
  for (const MemberInfo& member : group.members) Fill(member, message->add_members());
  if (!group.cause.empty()) Fill(group.cause, now, message->mutable_cause());
  message->set_bytes_held(group.bytes_held);
  message->set_waiter_count(group.waiter_count);
}

void Fill(const KeyValue& key_value, v1::KeyValue* message) {
  FillAllButValue(key_value, message);
  message->set_value(key_value.value.bytes());
}

bool IsLarge(const Payload& value) { return value.size() > kCopyBytes; }

std::string StartOfKeyValue(int field, const KeyValue& key_value) {
  v1::KeyValue rest;
  FillAllButValue(key_value, &rest);
  const auto size = static_cast<size_t>(key_value.value.size());
  std::string inner = rest.SerializeAsString();
  AppendFieldHeader(v1::KeyValue::kValueFieldNumber, size, &inner);
  return FieldHeader(field, inner.size() + size) + inner;
}

void AppendValue(const Payload& value, MessageBytes* message) {
  message->AppendShared(std::make_shared<const Payload>(value), value.bytes());
}

std::string FieldHeader(int field, size_t size) {
  std::string header;
  AppendFieldHeader(field, size, &header);
  return header;
}

void AppendPayload(int field, const Payload& payload, int64_t receipt, const EncodeContext& context,
                   MessageBytes* message) {
  if (!payload.has_value()) return;
  if (payload.size() > context.max_inline_bytes) {
    const OutgoingBlobs::Issued issued = context.blobs->Issue(
        context.now, *context.key, context.session, 1, {payload}, receipt, context.max_blob_bytes);
    v1::Payload wire;
    wire.mutable_blob()->set_blob(issued.id);
    wire.mutable_blob()->set_size_bytes(issued.content->size_bytes);
    wire.mutable_blob()->set_crc32(issued.content->crc32);
    const std::string bytes = wire.SerializeAsString();
    message->Append(FieldHeader(field, bytes.size()) + bytes);
    return;
  }
  const std::string inner =
      FieldHeader(v1::Payload::kInlineFieldNumber, static_cast<size_t>(payload.size()));
  std::string header = FieldHeader(field, inner.size() + payload.size()) + inner;
  if (!IsLarge(payload)) {
    message->Append(std::move(header) + payload.bytes());
  } else {
    message->Append(std::move(header));
    AppendValue(payload, message);
  }
}

}  // namespace cohort::coordinator
