#include "coordinator/journal/testing/sample_records.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/time/time.h"

namespace cohort::coordinator {
namespace {

constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();
const char kNotUtf8[] = "\xff\xfe\x00 end";

std::string NotUtf8() { return std::string(kNotUtf8, sizeof(kNotUtf8) - 1); }

Payload MakePayload(std::string bytes) { return Payload(std::move(bytes), nullptr); }

RecordValue FullGroup() {
  GroupRecord record;
  record.spec.min_members = 2;
  record.spec.max_members = 4096;
  record.spec.fate = Fate::kReport;
  record.spec.lease = absl::Milliseconds(1500);
  record.spec.attached_lease = absl::Seconds(7);
  record.spec.disconnect_grace = absl::Nanoseconds(1);
  record.spec.data_expiration = absl::InfiniteDuration();
  record.spec.progress_timeout = absl::Hours(24 * 365);
  record.spec.join_window = absl::ZeroDuration();
  record.spec.parameters_digest = NotUtf8();
  record.spec.labels = {{"", "empty key"}, {"zone", NotUtf8()}};
  record.generation = kMaxNumber;
  record.state = GroupState::kClosed;
  record.cause.kind = CauseKind::kStaleGeneration;
  record.cause.member = "trainer-17";
  record.cause.rank = 0;
  record.cause.host = "node-3";
  record.cause.detail = NotUtf8();
  record.cause.generation = 41;
  record.world_size = 4095;
  record.creator = "trainer-16";
  return record;
}

RecordValue FullMember() {
  MemberRecord record;
  record.incarnation = 7;
  record.rank = 16383;
  record.state = MemberState::kCandidate;
  record.session = Id128{0x0123456789abcdef, 0xfedcba9876543210};
  record.name = "trainer-17";
  record.identity = "spiffe://prod/ns/team-a/sa/trainer";
  record.host = NotUtf8();
  record.addresses = {"unix:/run/a", "", "[::1]:7000"};
  record.labels = {{"gpu", "3"}, {NotUtf8(), ""}};
  return record;
}

RecordValue FullObject() {
  ObjectRecord record;
  record.generation = 3;
  record.source = 1;
  record.destination = 2;
  record.tag = NotUtf8();
  record.sequence = kMaxNumber;
  record.expiration = absl::Seconds(3600);
  record.payload = MakePayload(NotUtf8());
  record.receipt = 11;
  record.receive_operation = Id128{0, 1};
  return record;
}

RecordValue FullRoundName() {
  RoundNameRecord record;
  record.generation = 3;
  record.kind = RoundKind::kAgreeAlive;
  record.name = NotUtf8();
  record.ended_through = 1000000;
  record.last_outcome = RoundOutcome::kMismatch;
  record.last_reason = "rank 3 said sum, rank 4 said max";
  record.last_released = 999999;
  record.late = {
      {5, {{1, 2}, {7, 7}}, RoundOutcome::kTimedOut, RoundKind::kVote, "why", {{0, 0}}, {{1, 7}}},
      {9, {{3, 3}}, std::nullopt, RoundKind::kBarrier, "", {}, {}}};
  return record;
}

RecordValue FullRoundEnd() {
  RoundEndRecord record;
  record.generation = 3;
  record.kind = RoundKind::kScatter;
  record.name = "step";
  record.number = 12;
  record.root = 2;
  record.ended = false;
  record.participants = {{0, 3}, {5, 5}};
  record.values = {MakePayload("a"), Payload(), MakePayload("")};
  record.receipt = 13;
  record.vote = std::numeric_limits<int64_t>::min();
  record.dissenting = {{1, 1}};
  record.alive = {{0, 0}, {2, 16383}};
  return record;
}

RecordValue FullKey() {
  KeyRecord record;
  record.key = NotUtf8();
  record.value = MakePayload("");
  record.revision = 9;
  record.created_revision = 8;
  record.expiration = absl::ZeroDuration();
  record.session = Id128{1, 0};
  return record;
}

RecordValue FullQueueItem() {
  QueueItemRecord record;
  record.queue = "work";
  record.sequence = 5;
  record.value = MakePayload(std::string(100000, '\xff'));
  record.expiration = absl::Milliseconds(1);
  record.receipt = 6;
  record.pop_operation = Id128{3, 4};
  return record;
}

RecordValue FullOperation() {
  OperationRecord record;
  record.id = Id128{5, 6};
  record.reply_kind = 4;
  record.first = -1;
  record.second = kMaxNumber;
  record.flag = true;
  record.number = 7;
  record.fingerprint = 0x8000000000000001;
  return record;
}

RecordValue FullSendOrder() {
  SendOrderRecord record;
  record.generation = 2;
  record.source = 3;
  record.destination = 4;
  record.tag = NotUtf8();
  record.last = kMaxNumber;
  return record;
}

RecordValue FullUniqueId() {
  UniqueIdRecord record;
  record.generation = 2;
  record.name = "tensor parallel";
  record.ids = {std::string(128, '\0'), NotUtf8(), ""};
  record.publisher = 3;
  record.receipt = 77;
  return record;
}

// The fields of a type, one by one. A field that is added there does not compile here until it is
// compared too.
bool Same(const Payload& a, const Payload& b) {
  return a.has_value() == b.has_value() && a.bytes() == b.bytes();
}
bool Same(const std::vector<Payload>& a, const std::vector<Payload>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Payload& x, const Payload& y) { return Same(x, y); });
}
bool Same(const GroupSpec& a, const GroupSpec& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 &&
         a7 == b7 && a8 == b8 && a9 == b9 && a10 == b10;
}
bool Same(const Cause& a, const Cause& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a_at] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b_at] = b;
  static_cast<void>(a_at);
  static_cast<void>(b_at);
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5;
}
bool Same(const GroupRecord& a, const GroupRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5] = a;
  const auto& [b0, b1, b2, b3, b4, b5] = b;
  return Same(a0, b0) && a1 == b1 && a2 == b2 && Same(a3, b3) && a4 == b4 && a5 == b5;
}
bool Same(const MemberRecord& a, const MemberRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b6, b7, b8] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 &&
         a7 == b7 && a8 == b8;
}
bool Same(const ObjectRecord& a, const ObjectRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b6, b7, b8] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && Same(a6, b6) &&
         a7 == b7 && a8 == b8;
}
bool Same(const RoundNameRecord& a, const RoundNameRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a6, a7] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b6, b7] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 &&
         a7 == b7;
}
bool Same(const RoundEndRecord& a, const RoundEndRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6 &&
         Same(a7, b7) && a8 == b8 && a9 == b9 && a10 == b10 && a11 == b11;
}
bool Same(const KeyRecord& a, const KeyRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5] = a;
  const auto& [b0, b1, b2, b3, b4, b5] = b;
  return a0 == b0 && Same(a1, b1) && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5;
}
bool Same(const QueueItemRecord& a, const QueueItemRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5] = a;
  const auto& [b0, b1, b2, b3, b4, b5] = b;
  return a0 == b0 && a1 == b1 && Same(a2, b2) && a3 == b3 && a4 == b4 && a5 == b5;
}
bool Same(const OperationRecord& a, const OperationRecord& b) {
  const auto& [a0, a1, a2, a3, a4, a5, a6] = a;
  const auto& [b0, b1, b2, b3, b4, b5, b6] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4 && a5 == b5 && a6 == b6;
}
bool Same(const UniqueIdRecord& a, const UniqueIdRecord& b) {
  const auto& [a0, a1, a2, a3, a4] = a;
  const auto& [b0, b1, b2, b3, b4] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4;
}

bool Same(const SendOrderRecord& a, const SendOrderRecord& b) {
  const auto& [a0, a1, a2, a3, a4] = a;
  const auto& [b0, b1, b2, b3, b4] = b;
  return a0 == b0 && a1 == b1 && a2 == b2 && a3 == b3 && a4 == b4;
}

}  // namespace

std::vector<RecordValue> SampleValues() {
  return {FullGroup(),     GroupRecord(),     FullMember(),    MemberRecord(),
          FullObject(),    ObjectRecord(),    FullRoundName(), RoundNameRecord(),
          FullRoundEnd(),  RoundEndRecord(),  FullKey(),       KeyRecord(),
          FullQueueItem(), QueueItemRecord(), FullOperation(), OperationRecord(),
          FullUniqueId(),  UniqueIdRecord(),  FullSendOrder(), SendOrderRecord()};
}

Record SampleKey(const std::string& group, const std::string& key, std::string value) {
  KeyRecord record;
  record.key = key;
  record.value = MakePayload(std::move(value));
  record.revision = 1;
  record.created_revision = 1;
  return Record{{"tenant", group}, RecordKind::kKey, key, std::move(record)};
}

bool SameValue(const RecordValue& a, const RecordValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& record) {
        return Same(record, std::get<std::decay_t<decltype(record)>>(b));
      },
      a);
}

bool SameRecord(const Record& a, const Record& b) {
  if (!(a.key == b.key) || a.kind != b.kind || a.id != b.id || a.whole_kind != b.whole_kind ||
      a.value.has_value() != b.value.has_value()) {
    return false;
  }
  return !a.value.has_value() || SameValue(*a.value, *b.value);
}

}  // namespace cohort::coordinator
