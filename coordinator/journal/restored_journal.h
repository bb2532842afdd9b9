// The journal of a coordinator that is restored from an older copy.
//
// The copy knows less than clients have seen: numbers that follow from it would come a second time,
// and a generation is a fencing token of users. So revisions and sequences begin above all that the
// lost journal can have given out, and the groups of the copy, whose members have moved on, are
// closed in a generation far above their last one.
#ifndef COHORT_COORDINATOR_JOURNAL_RESTORED_JOURNAL_H_
#define COHORT_COORDINATOR_JOURNAL_RESTORED_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/journal/journal.h"

namespace cohort::coordinator {

// The least boot of a journal that is restored at this time: more than there have been seconds
// since 2026, and so more than starts.
int64_t BootOfRestore(absl::Time now);

// Confined to one thread at a time.
class RestoredJournal final : public Journal {
 public:
  // A group had fewer generations after the copy was made.
  static constexpr int64_t kGenerations = int64_t{1} << 20;

  // `copy` opens with BootOfRestore or a later boot.
  explicit RestoredJournal(std::unique_ptr<Journal> copy) : copy_(std::move(copy)) {}

  using Journal::Open;
  absl::StatusOr<int64_t> Open(const RowSink& take) override;
  absl::Status Append(const std::vector<Record>& records) override {
    return copy_->Append(records);
  }
  bool keeps_nothing() const override { return copy_->keeps_nothing(); }
  const char* name() const override { return copy_->name(); }

 private:
  const std::unique_ptr<Journal> copy_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_RESTORED_JOURNAL_H_
