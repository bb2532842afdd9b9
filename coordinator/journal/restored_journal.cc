#include "coordinator/journal/restored_journal.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "absl/time/civil_time.h"
#include "base/status_macros.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kRecordsAtOnce = 1000;
constexpr std::array<RecordKind, 9> kRowsOfGroups = {
    RecordKind::kMember,    RecordKind::kObject,    RecordKind::kRoundName,
    RecordKind::kRoundEnd,  RecordKind::kKey,       RecordKind::kQueueItem,
    RecordKind::kOperation, RecordKind::kUniqueId, RecordKind::kSendOrder};

}  // namespace

int64_t BootOfRestore(absl::Time now) {
  const absl::Time first = absl::FromCivil(absl::CivilDay(2026, 1, 1), absl::UTCTimeZone());
  return std::max<int64_t>(absl::ToInt64Seconds(now - first), 1);
}

absl::StatusOr<int64_t> RestoredJournal::Open(const RowSink& take) {
  std::vector<Record> changes;
  COHORT_ASSIGN_OR_RETURN(const int64_t boot, copy_->Open([&](int64_t its_boot, Record row) {
    if (row.key.group.empty()) return take(its_boot, std::move(row));
    if (row.kind != RecordKind::kGroup || !row.value.has_value()) return;
    auto* const group = std::get_if<GroupRecord>(&*row.value);
    if (group == nullptr) return;
    if (group->state != GroupState::kClosed) {
      group->state = GroupState::kClosed;
      group->cause = Cause();
      group->cause.kind = CauseKind::kClosed;
      group->cause.detail = "the coordinator was restored from a copy";
      group->cause.generation = group->generation;
      for (const RecordKind kind : kRowsOfGroups) {
        Record rows;
        rows.key = row.key;
        rows.kind = kind;
        rows.whole_kind = true;
        changes.push_back(std::move(rows));
      }
    }
    group->generation += kGenerations;
    changes.push_back(row);
    take(its_boot, std::move(row));
  }));
  for (size_t at = 0; at < changes.size(); at += kRecordsAtOnce) {
    const size_t end = std::min(changes.size(), at + kRecordsAtOnce);
    COHORT_RETURN_IF_ERROR(copy_->Append(std::vector<Record>(
        changes.begin() + static_cast<int64_t>(at), changes.begin() + static_cast<int64_t>(end))));
  }
  return boot;
}

}  // namespace cohort::coordinator
