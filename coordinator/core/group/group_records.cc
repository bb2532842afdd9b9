// Writes the journal rows of a group, and restores a group from them.
#include <utility>

#include "coordinator/core/group/group.h"

namespace cohort::coordinator {

Group::Group(Shard& shard, GroupKey key, const GroupRecord& record)
    : Group(shard, std::move(key), record.spec, record.generation, record.world_size) {
  state_ = record.state;
  cause_ = record.cause;
  creator_ = record.creator;
}

void Group::WriteGroup(Step& step) {
  if (!step.keeps_records()) return;
  GroupRecord record;
  record.spec = context_.spec;
  record.generation = context_.generation;
  record.state = state_;
  record.cause = cause_;
  record.world_size = context_.world_size;
  record.creator = creator_;
  step.Write(context_.key, RecordKind::kGroup, "", std::move(record));
}

void Group::WriteMember(Step& step, const Member& member) {
  if (!step.keeps_records()) return;
  step.Write(context_.key, RecordKind::kMember, member.name, MemberRecord(member));
}

void Group::EraseMember(Step& step, const Member& member) {
  step.Erase(context_.key, RecordKind::kMember, member.name);
}

void Group::Restore(Instant now, const Record& row) {
  if (!row.value.has_value()) return;
  const RecordValue& value = *row.value;
  if (const auto* record = std::get_if<MemberRecord>(&value)) {
    auto member = std::make_unique<Member>();
    static_cast<MemberRecord&>(*member) = *record;
    member->joined_at = member->last_heard = member->progress_at = member->operation_at = now;
    // No Join is parked after a restart; the members will call again.
    if (state_ == GroupState::kForming && member->state == MemberState::kActive) {
      member->state = MemberState::kJoining;
    }
    context_.roster.Add(std::move(member));
  } else if (const auto* object = std::get_if<ObjectRecord>(&value)) {
    if (object->generation == context_.generation) mailboxes_.Restore(now, *object);
  } else if (const auto* order = std::get_if<SendOrderRecord>(&value)) {
    if (order->generation == context_.generation) mailboxes_.numbered_sends().Restore(*order);
  } else if (const auto* name = std::get_if<RoundNameRecord>(&value)) {
    if (name->generation == context_.generation) rounds_.Restore(now, *name);
  } else if (const auto* end = std::get_if<RoundEndRecord>(&value)) {
    if (end->generation == context_.generation) rounds_.Restore(now, *end);
  } else if (const auto* key = std::get_if<KeyRecord>(&value)) {
    store_.Restore(now, *key);
  } else if (const auto* item = std::get_if<QueueItemRecord>(&value)) {
    store_.Restore(now, *item);
  } else if (const auto* operation = std::get_if<OperationRecord>(&value)) {
    operations_.Restore(*operation, now);
  } else if (const auto* ids = std::get_if<UniqueIdRecord>(&value)) {
    if (ids->generation == context_.generation) unique_ids_.Restore(*ids);
  }
}

void Group::FinishRestore(Instant now) {
  last_arrival_ = now;
  for (const auto& [rank, member] : context_.roster.by_rank()) {
    if (member->live() || state_ == GroupState::kForming) continue;
    Cause cause = CauseOf(member->state == MemberState::kLeft ? CauseKind::kLeft : CauseKind::kLeaseExpired,
                          *member, "before the coordinator was restarted", now);
    if (cause_.member == member->name) cause = cause_;
    context_.gone.emplace(rank, cause);
  }
  cause_.at = now;
  if (!context_.roster.AnyLive()) ScheduleLinger(now);
  ScheduleLiveness(now);
}

}  // namespace cohort::coordinator
