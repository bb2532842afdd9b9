// The interface of journals, which keep the state that outlives the process. Implementations:
// memory (keeps nothing), sqlite (one file).
#ifndef COHORT_COORDINATOR_JOURNAL_JOURNAL_H_
#define COHORT_COORDINATOR_JOURNAL_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/interface/record.h"

namespace cohort::coordinator {

struct JournalContents {
  // How often this journal was opened, this time included: 1, 2, ... It is durable when Open
  // returns.
  int64_t boot = 1;
  std::vector<Record> rows;
};

// Confined to one thread at a time.
class Journal {
 public:
  virtual ~Journal() = default;

  // Reads all rows back, one by one, so that the journal holds at most one row. The row kGroup of a
  // group comes before its other rows. `boot` is the same in every call. Call it once, before the
  // first Append. Returns the boot, which is then durable.
  using RowSink = std::function<void(int64_t boot, Record row)>;
  virtual absl::StatusOr<int64_t> Open(const RowSink& take) = 0;

  // Reads all rows at once, for tests and tools.
  absl::StatusOr<JournalContents> Open() {
    JournalContents contents;
    const absl::StatusOr<int64_t> boot =
        Open([&contents](int64_t, Record row) { contents.rows.push_back(std::move(row)); });
    if (!boot.ok()) return boot.status();
    contents.boot = *boot;
    return contents;
  }

  // Applies either all records, in order, or no record; returns when they are durable. Blocks
  // (disk). Errors:
  //   UNAVAILABLE, RESOURCE_EXHAUSTED (disk full): nothing was applied; a later Append may succeed.
  //   INTERNAL: damaged, or the disk failed to sync: whether the batch is kept shows at the next
  //     start, and every later Append fails; the process should end.
  virtual absl::Status Append(const std::vector<Record>& records) = 0;

  // True: the journal keeps no rows, and Append need not be called.
  virtual bool keeps_nothing() const = 0;
  // "memory", "sqlite".
  virtual const char* name() const = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_JOURNAL_H_
