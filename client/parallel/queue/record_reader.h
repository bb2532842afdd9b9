// Values out of a source of records.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RECORD_READER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RECORD_READER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/parallel/queue/byte_source.h"
#include "client/parallel/queue/ring_layout.h"

namespace cohort::parallel {

// What a call that failed has read of a value is kept: the next goes on with it. One thread at a
// time. Errors: the source's; DATA_LOSS (the writer does not keep to the layout).
class RecordReader {
 public:
  // Longer values than `max_value_bytes` are not believed. `source` outlives it.
  RecordReader(ByteSource& source, uint64_t max_value_bytes)
      : source_(source), max_value_bytes_(max_value_bytes) {}

  // The next value, copied once.
  absl::StatusOr<std::string> Next(const Patience& patience);
  // `use` sees it: where it lies, if it came in one record; else a copy. However `use` ends, by an
  // exception too, the value has been read.
  absl::Status View(absl::FunctionRef<absl::Status(absl::string_view)> use,
                    const Patience& patience);

 private:
  bool between_values() const { return !in_value_; }
  // The header in front, which it does not release.
  absl::StatusOr<RecordHeader> PeekHeader(const Patience& patience);
  absl::Status OpenRecord(const Patience& patience);
  absl::Status CopyOn(const Patience& patience);
  absl::Status Assemble(const Patience& patience);

  ByteSource& source_;
  const uint64_t max_value_bytes_;
  // Of the value that is being put together.
  bool in_value_ = false;
  std::string value_;
  uint64_t value_left_ = 0;
  uint64_t record_left_ = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RECORD_READER_H_
