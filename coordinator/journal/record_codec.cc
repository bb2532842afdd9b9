// Each kind has a short Encode and Decode, side by side, and a bool that is false for invalid
// values. All kinds are in one file, so that a change of one half does not forget the other.
#include "coordinator/journal/record_codec.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "coordinator/journal/record.pb.h"

namespace cohort::coordinator {
namespace {

namespace wire = ::cohort::journal::v1;

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// Saturates: an infinite duration is kForever.
int64_t Encode(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }

absl::Duration DecodeDuration(int64_t nanoseconds) {
  return nanoseconds == kForever ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
}

std::string Encode(const Id128& id) { return id.empty() ? std::string() : id.ToBytes(); }

bool Decode(const std::string& bytes, Id128* id) {
  if (bytes.empty()) {
    *id = Id128();
    return true;
  }
  if (bytes.size() != Id128::kBytes) return false;
  *id = Id128::FromBytes(bytes);
  return true;
}

template <typename Enum>
bool DecodeEnum(int32_t number, Enum first, Enum last, Enum* value) {
  if (number < static_cast<int>(first) || number > static_cast<int>(last)) return false;
  *value = static_cast<Enum>(number);
  return true;
}

using WireLabels = google::protobuf::RepeatedPtrField<wire::Label>;

void Encode(const std::map<std::string, std::string>& labels, WireLabels* out) {
  for (const auto& [key, value] : labels) {
    wire::Label* label = out->Add();
    label->set_key(key);
    label->set_value(value);
  }
}

std::map<std::string, std::string> DecodeLabels(const WireLabels& in) {
  std::map<std::string, std::string> labels;
  for (const wire::Label& label : in) labels[label.key()] = label.value();
  return labels;
}

using WireRanks = google::protobuf::RepeatedPtrField<wire::Ranks>;

void Encode(const std::vector<RankRange>& ranges, WireRanks* out) {
  for (const RankRange& range : ranges) {
    wire::Ranks* ranks = out->Add();
    ranks->set_first(range.first);
    ranks->set_last(range.last);
  }
}

bool Decode(const WireRanks& in, std::vector<RankRange>* ranges) {
  ranges->reserve(in.size());
  for (const wire::Ranks& ranks : in) {
    if (ranks.first() < 0 || ranks.last() < ranks.first() || ranks.last() > kMaxRank) return false;
    ranges->push_back({ranks.first(), ranks.last()});
  }
  return true;
}

void Encode(const Payload& payload, wire::Payload* out) {
  if (payload.has_value()) out->set_bytes(payload.bytes());
}

Payload DecodePayload(wire::Payload* in) {
  if (!in->has_bytes()) return Payload();
  return Payload(std::move(*in->mutable_bytes()), nullptr);
}

void EncodeSpec(const GroupSpec& spec, wire::Group::Spec* out) {
  out->set_min_members(spec.min_members);
  out->set_max_members(spec.max_members);
  out->set_fate(static_cast<int>(spec.fate));
  out->set_lease_nanoseconds(Encode(spec.lease));
  out->set_attached_lease_nanoseconds(Encode(spec.attached_lease));
  out->set_disconnect_grace_nanoseconds(Encode(spec.disconnect_grace));
  out->set_data_expiration_nanoseconds(Encode(spec.data_expiration));
  out->set_progress_timeout_nanoseconds(Encode(spec.progress_timeout));
  out->set_join_window_nanoseconds(Encode(spec.join_window));
  out->set_parameters_digest(spec.parameters_digest);
  Encode(spec.labels, out->mutable_labels());
}

bool DecodeSpec(const wire::Group::Spec& in, GroupSpec* spec) {
  spec->min_members = in.min_members();
  spec->max_members = in.max_members();
  spec->lease = DecodeDuration(in.lease_nanoseconds());
  spec->attached_lease = DecodeDuration(in.attached_lease_nanoseconds());
  spec->disconnect_grace = DecodeDuration(in.disconnect_grace_nanoseconds());
  spec->data_expiration = DecodeDuration(in.data_expiration_nanoseconds());
  spec->progress_timeout = DecodeDuration(in.progress_timeout_nanoseconds());
  spec->join_window = DecodeDuration(in.join_window_nanoseconds());
  spec->parameters_digest = in.parameters_digest();
  spec->labels = DecodeLabels(in.labels());
  return DecodeEnum(in.fate(), Fate::kShare, Fate::kReport, &spec->fate);
}

void EncodeCause(const Cause& cause, wire::Group::Cause* out) {
  out->set_kind(static_cast<int>(cause.kind));
  out->set_member(cause.member);
  if (cause.rank.has_value()) out->set_rank(*cause.rank);
  out->set_host(cause.host);
  out->set_detail(cause.detail);
  out->set_generation(cause.generation);
}

bool DecodeCause(const wire::Group::Cause& in, Cause* cause) {
  cause->member = in.member();
  if (in.has_rank()) cause->rank = in.rank();
  cause->host = in.host();
  cause->detail = in.detail();
  cause->generation = in.generation();
  return DecodeEnum(in.kind(), CauseKind::kNone, CauseKind::kStaleGeneration, &cause->kind);
}

void Encode(const GroupRecord& record, wire::Row* row) {
  wire::Group* out = row->mutable_group();
  EncodeSpec(record.spec, out->mutable_spec());
  out->set_generation(record.generation);
  out->set_state(static_cast<int>(record.state));
  EncodeCause(record.cause, out->mutable_cause());
  out->set_world_size(record.world_size);
  out->set_creator(record.creator);
}

bool Decode(const wire::Group& in, GroupRecord* record) {
  record->generation = in.generation();
  record->world_size = in.world_size();
  record->creator = in.creator();
  return DecodeSpec(in.spec(), &record->spec) && DecodeCause(in.cause(), &record->cause) &&
         DecodeEnum(in.state(), GroupState::kForming, GroupState::kClosed, &record->state);
}

void Encode(const MemberRecord& record, wire::Row* row) {
  wire::Member* out = row->mutable_member();
  out->set_incarnation(record.incarnation);
  out->set_rank(record.rank);
  out->set_state(static_cast<int>(record.state));
  out->set_session(Encode(record.session));
  out->set_name(record.name);
  out->set_identity(record.identity);
  out->set_host(record.host);
  for (const std::string& address : record.addresses) out->add_addresses(address);
  Encode(record.labels, out->mutable_labels());
}

bool Decode(const wire::Member& in, MemberRecord* record) {
  record->incarnation = in.incarnation();
  record->rank = in.rank();
  record->name = in.name();
  record->identity = in.identity();
  record->host = in.host();
  record->addresses.assign(in.addresses().begin(), in.addresses().end());
  record->labels = DecodeLabels(in.labels());
  return DecodeEnum(in.state(), MemberState::kJoining, MemberState::kCandidate, &record->state) &&
         Decode(in.session(), &record->session);
}

void Encode(const ObjectRecord& record, wire::Row* row) {
  wire::Object* out = row->mutable_object();
  out->set_generation(record.generation);
  out->set_source(record.source);
  out->set_destination(record.destination);
  out->set_tag(record.tag);
  out->set_sequence(record.sequence);
  out->set_expiration_nanoseconds(Encode(record.expiration));
  Encode(record.payload, out->mutable_payload());
  out->set_receipt(record.receipt);
  out->set_receive_operation(Encode(record.receive_operation));
}

bool Decode(wire::Object& in, ObjectRecord* record) {
  record->generation = in.generation();
  record->source = in.source();
  record->destination = in.destination();
  record->tag = in.tag();
  record->sequence = in.sequence();
  record->expiration = DecodeDuration(in.expiration_nanoseconds());
  record->payload = DecodePayload(in.mutable_payload());
  record->receipt = in.receipt();
  return Decode(in.receive_operation(), &record->receive_operation);
}

void Encode(const RoundNameRecord& record, wire::Row* row) {
  wire::RoundName* out = row->mutable_round_name();
  out->set_generation(record.generation);
  out->set_kind(static_cast<int>(record.kind));
  out->set_name(record.name);
  out->set_ended_through(record.ended_through);
  out->set_last_outcome(static_cast<int>(record.last_outcome));
  out->set_last_reason(record.last_reason);
  out->set_last_released(record.last_released);
  for (const RoundNameRecord::Late& late : record.late) {
    wire::RoundName::Late* row = out->add_late();
    row->set_number(late.number);
    Encode(late.ranks, row->mutable_ranks());
    if (!late.outcome.has_value()) continue;
    row->set_outcome(static_cast<int>(*late.outcome));
    row->set_kind(static_cast<int>(late.kind));
    row->set_reason(late.reason);
    Encode(late.arrived, row->mutable_arrived());
    Encode(late.missing, row->mutable_missing());
  }
}

bool Decode(const wire::RoundName::Late& in, RoundNameRecord::Late* late) {
  late->number = in.number();
  if (!Decode(in.ranks(), &late->ranks)) return false;
  if (in.outcome() == 0) return true;
  late->reason = in.reason();
  return DecodeEnum(in.outcome(), RoundOutcome::kReleased, RoundOutcome::kMismatch,
                    &late->outcome.emplace()) &&
         DecodeEnum(in.kind(), RoundKind::kBarrier, RoundKind::kAgreeAlive, &late->kind) &&
         Decode(in.arrived(), &late->arrived) && Decode(in.missing(), &late->missing);
}

bool Decode(const wire::RoundName& in, RoundNameRecord* record) {
  record->generation = in.generation();
  record->name = in.name();
  record->ended_through = in.ended_through();
  record->last_reason = in.last_reason();
  record->last_released = in.last_released();
  for (const wire::RoundName::Late& late : in.late()) {
    if (!Decode(late, &record->late.emplace_back())) return false;
  }
  return DecodeEnum(in.kind(), RoundKind::kBarrier, RoundKind::kAgreeAlive, &record->kind) &&
         DecodeEnum(in.last_outcome(), RoundOutcome::kReleased, RoundOutcome::kMismatch,
                    &record->last_outcome);
}

void Encode(const RoundEndRecord& record, wire::Row* row) {
  wire::RoundEnd* out = row->mutable_round_end();
  out->set_generation(record.generation);
  out->set_kind(static_cast<int>(record.kind));
  out->set_name(record.name);
  out->set_number(record.number);
  out->set_root(record.root);
  out->set_ended(record.ended);
  Encode(record.participants, out->mutable_participants());
  for (const Payload& value : record.values) Encode(value, out->add_values());
  out->set_receipt(record.receipt);
  out->set_vote(record.vote);
  Encode(record.dissenting, out->mutable_dissenting());
  Encode(record.alive, out->mutable_alive());
}

bool Decode(wire::RoundEnd& in, RoundEndRecord* record) {
  record->generation = in.generation();
  record->name = in.name();
  record->number = in.number();
  record->root = in.root();
  record->ended = in.ended();
  record->values.reserve(in.values_size());
  for (wire::Payload& value : *in.mutable_values()) record->values.push_back(DecodePayload(&value));
  record->receipt = in.receipt();
  record->vote = in.vote();
  return DecodeEnum(in.kind(), RoundKind::kBarrier, RoundKind::kAgreeAlive, &record->kind) &&
         Decode(in.participants(), &record->participants) &&
         Decode(in.dissenting(), &record->dissenting) && Decode(in.alive(), &record->alive);
}

void Encode(const KeyRecord& record, wire::Row* row) {
  wire::Key* out = row->mutable_key();
  out->set_key(record.key);
  Encode(record.value, out->mutable_value());
  out->set_revision(record.revision);
  out->set_created_revision(record.created_revision);
  if (record.expiration.has_value()) out->set_expiration_nanoseconds(Encode(*record.expiration));
  out->set_session(Encode(record.session));
}

bool Decode(wire::Key& in, KeyRecord* record) {
  record->key = in.key();
  record->value = DecodePayload(in.mutable_value());
  record->revision = in.revision();
  record->created_revision = in.created_revision();
  if (in.has_expiration_nanoseconds()) {
    record->expiration = DecodeDuration(in.expiration_nanoseconds());
  }
  return Decode(in.session(), &record->session);
}

void Encode(const QueueItemRecord& record, wire::Row* row) {
  wire::QueueItem* out = row->mutable_queue_item();
  out->set_queue(record.queue);
  out->set_sequence(record.sequence);
  Encode(record.value, out->mutable_value());
  out->set_expiration_nanoseconds(Encode(record.expiration));
  out->set_receipt(record.receipt);
  out->set_pop_operation(Encode(record.pop_operation));
}

bool Decode(wire::QueueItem& in, QueueItemRecord* record) {
  record->queue = in.queue();
  record->sequence = in.sequence();
  record->value = DecodePayload(in.mutable_value());
  record->expiration = DecodeDuration(in.expiration_nanoseconds());
  record->receipt = in.receipt();
  return Decode(in.pop_operation(), &record->pop_operation);
}

void Encode(const OperationRecord& record, wire::Row* row) {
  wire::Operation* out = row->mutable_operation();
  out->set_id(Encode(record.id));
  out->set_reply_kind(record.reply_kind);
  out->set_first(record.first);
  out->set_second(record.second);
  out->set_flag(record.flag);
  out->set_number(record.number);
  out->set_fingerprint(record.fingerprint);
}

bool Decode(const wire::Operation& in, OperationRecord* record) {
  record->reply_kind = in.reply_kind();
  record->first = in.first();
  record->second = in.second();
  record->flag = in.flag();
  record->number = in.number();
  record->fingerprint = in.fingerprint();
  return Decode(in.id(), &record->id);
}

void Encode(const UniqueIdRecord& record, wire::Row* row) {
  wire::UniqueId* out = row->mutable_unique_id();
  out->set_generation(record.generation);
  out->set_name(record.name);
  for (const std::string& id : record.ids) out->add_ids(id);
  out->set_publisher(record.publisher);
  out->set_receipt(record.receipt);
}

bool Decode(const wire::UniqueId& in, UniqueIdRecord* record) {
  record->generation = in.generation();
  record->name = in.name();
  record->ids.assign(in.ids().begin(), in.ids().end());
  record->publisher = in.publisher();
  record->receipt = in.receipt();
  return true;
}

void Encode(const SendOrderRecord& record, wire::Row* row) {
  wire::SendOrder* out = row->mutable_send_order();
  out->set_generation(record.generation);
  out->set_source(record.source);
  out->set_destination(record.destination);
  out->set_tag(record.tag);
  out->set_last(record.last);
}

bool Decode(const wire::SendOrder& in, SendOrderRecord* record) {
  record->generation = in.generation();
  record->source = in.source();
  record->destination = in.destination();
  record->tag = in.tag();
  record->last = in.last();
  return true;
}

template <typename RecordType, typename WireType>
absl::StatusOr<RecordValue> DecodeAs(WireType* in) {
  RecordType record;
  if (!Decode(*in, &record))
    return absl::DataLossError("a field holds a value that is never written");
  return RecordValue(std::move(record));
}

}  // namespace

const char* RecordKindName(RecordKind kind) {
  switch (kind) {
    case RecordKind::kGroup:
      return "group";
    case RecordKind::kMember:
      return "member";
    case RecordKind::kObject:
      return "object";
    case RecordKind::kRoundName:
      return "round name";
    case RecordKind::kRoundEnd:
      return "round end";
    case RecordKind::kKey:
      return "key";
    case RecordKind::kQueueItem:
      return "queue item";
    case RecordKind::kOperation:
      return "operation";
    case RecordKind::kUniqueId:
      return "unique id";
    case RecordKind::kSendOrder:
      return "send order";
  }
  return "unknown";
}

RecordKind KindOf(const RecordValue& value) {
  // The variant lists its types in the order of the kinds.
  static_assert(std::is_same_v<std::variant_alternative_t<0, RecordValue::variant>, GroupRecord>);
  static_assert(std::is_same_v<std::variant_alternative_t<4, RecordValue::variant>, RoundEndRecord>);
  static_assert(std::is_same_v<std::variant_alternative_t<8, RecordValue::variant>, UniqueIdRecord>);
  static_assert(std::is_same_v<std::variant_alternative_t<9, RecordValue::variant>, SendOrderRecord>);
  static_assert(std::variant_size_v<RecordValue::variant> == 10);
  return static_cast<RecordKind>(value.index() + 1);
}

std::string DescribeRow(const GroupKey& key, RecordKind kind, absl::string_view id) {
  constexpr size_t kMaxId = 128;
  return absl::StrCat("tenant \"", absl::CHexEscape(key.tenant), "\" group \"",
                      absl::CHexEscape(key.group), "\" kind ", RecordKindName(kind), " (",
                      static_cast<int>(kind), ") id \"", absl::CHexEscape(id.substr(0, kMaxId)),
                      id.size() > kMaxId ? "...\"" : "\"");
}

std::string EncodeRecord(const RecordValue& value) {
  wire::Row row;
  std::visit([&row](const auto& record) { Encode(record, &row); }, value);
  return row.SerializeAsString();
}

absl::StatusOr<RecordValue> DecodeRecord(RecordKind kind, absl::string_view bytes) {
  wire::Row row;
  if (bytes.size() > std::numeric_limits<int32_t>::max() ||
      !row.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("the bytes are not a row");
  }
  if (row.value_case() == wire::Row::VALUE_NOT_SET ||
      static_cast<int>(row.value_case()) != static_cast<int>(kind)) {
    return absl::DataLossError(absl::StrCat("expected a value of kind ", RecordKindName(kind), " (",
                                            static_cast<int>(kind), "), found kind ",
                                            static_cast<int>(row.value_case())));
  }
  switch (row.value_case()) {
    case wire::Row::kGroup:
      return DecodeAs<GroupRecord>(row.mutable_group());
    case wire::Row::kMember:
      return DecodeAs<MemberRecord>(row.mutable_member());
    case wire::Row::kObject:
      return DecodeAs<ObjectRecord>(row.mutable_object());
    case wire::Row::kRoundName:
      return DecodeAs<RoundNameRecord>(row.mutable_round_name());
    case wire::Row::kRoundEnd:
      return DecodeAs<RoundEndRecord>(row.mutable_round_end());
    case wire::Row::kKey:
      return DecodeAs<KeyRecord>(row.mutable_key());
    case wire::Row::kQueueItem:
      return DecodeAs<QueueItemRecord>(row.mutable_queue_item());
    case wire::Row::kOperation:
      return DecodeAs<OperationRecord>(row.mutable_operation());
    case wire::Row::kUniqueId:
      return DecodeAs<UniqueIdRecord>(row.mutable_unique_id());
    case wire::Row::kSendOrder:
      return DecodeAs<SendOrderRecord>(row.mutable_send_order());
    case wire::Row::VALUE_NOT_SET:
      break;
  }
  return absl::DataLossError("the bytes are not a row");
}

}  // namespace cohort::coordinator
