// A journal that keeps nothing: every start is the first. For tests, laptops, and groups that may
// form again after a restart.
#ifndef COHORT_COORDINATOR_JOURNAL_MEMORY_JOURNAL_H_
#define COHORT_COORDINATOR_JOURNAL_MEMORY_JOURNAL_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/journal/journal.h"

namespace cohort::coordinator {

class MemoryJournal final : public Journal {
 public:
  // Boot 1 and no rows.
  using Journal::Open;
  absl::StatusOr<int64_t> Open(const RowSink& take) override;
  // OK.
  absl::Status Append(const std::vector<Record>& records) override;
  bool keeps_nothing() const override { return true; }
  const char* name() const override { return "memory"; }
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_MEMORY_JOURNAL_H_
