// Reads values from a source of records.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_RECORD_READER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_RECORD_READER_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/parallel/queue/ring/byte_source.h"
#include "client/parallel/queue/ring/ring_layout.h"

namespace cohort::parallel {

// A failed call keeps the part of a value that it has read: the next call goes on with it. One
// thread at a time calls it. Errors: the source's; DATA_LOSS (the writer does not follow the
// layout).
class RecordReader {
 public:
  // Values longer than `max_value_bytes` are DATA_LOSS. `source` outlives it.
  RecordReader(ByteSource& source, uint64_t max_value_bytes)
      : source_(source), max_value_bytes_(max_value_bytes) {}

  // Returns the next value, copied once.
  absl::StatusOr<std::string> Next(const WaitLimit& limit);
  // Calls `use` with the next value: in place if it came in one record, else with a copy. However
  // `use` ends, even by an exception, the value has been read.
  absl::Status View(absl::FunctionRef<absl::Status(absl::string_view)> use, const WaitLimit& limit);
  // The two halves of View. Front returns the next value, valid until Pop, which follows it before
  // any other call.
  absl::StatusOr<absl::string_view> Front(const WaitLimit& limit);
  void Pop();

 private:
  bool between_values() const { return !in_value_; }
  // Returns the header in front, without releasing it.
  absl::StatusOr<RecordHeader> PeekHeader(const WaitLimit& limit);
  absl::Status OpenRecord(const WaitLimit& limit);
  absl::Status CopyOn(const WaitLimit& limit);
  absl::Status Assemble(const WaitLimit& limit);

  ByteSource& source_;
  const uint64_t max_value_bytes_;
  // The state of the value that is being assembled.
  bool in_value_ = false;
  std::string value_;
  uint64_t value_left_ = 0;
  uint64_t record_left_ = 0;
  uint64_t front_record_ = 0;  // between Front and Pop: its record in the source; 0: it is value_
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_RECORD_READER_H_
