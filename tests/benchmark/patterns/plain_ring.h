// The message queue of vLLM as its source describes it, in its plainest form: a queue is measured
// against it. It has blocks in shared memory. Each block has one flag that it is written, and for
// each reader one flag that it is read. Both sides poll the flags in a loop that yields the
// processor.
//
// It copies a value as often as its model does: once in and once out. It leaves out the rest of its
// model: pickling, the barrier by a lock around each flag, the socket for large values, and
// sleeping when no value comes. It also lacks what Cohort's queue has beyond the model: it does not
// notice a dead process, and a waiting process keeps a processor busy.
#ifndef COHORT_TESTS_BENCHMARK_PATTERNS_PLAIN_RING_H_
#define COHORT_TESTS_BENCHMARK_PATTERNS_PLAIN_RING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::benchmark {

// The end of one process: the writer, or one of the readers. It waits without limit, as its model
// does. Movable.
class PlainRing {
 public:
  static constexpr int64_t kBlocks = 6;
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;

  // `path`: a file that all processes open; it is all zeros or does not exist. `reader` is
  // 0..readers-1, or -1 for the writer.
  static absl::StatusOr<PlainRing> Open(const std::string& path, int readers, int reader);
  PlainRing(PlainRing&& other) noexcept;
  PlainRing& operator=(PlainRing&& other) = delete;
  ~PlainRing();

  // Errors: INVALID_ARGUMENT (larger than a block).
  absl::Status Enqueue(absl::string_view value);
  // Copies into `value`, and reuses its memory.
  absl::Status Dequeue(std::string* value);

 private:
  PlainRing(char* memory, size_t bytes, int readers, int reader)
      : memory_(memory), bytes_(bytes), readers_(readers), reader_(reader) {}

  // The flags of block `at`: first "written", then one for each reader.
  uint8_t* Flags(int64_t at) const;
  char* Block(int64_t at) const { return memory_ + at * kBlockBytes; }

  char* memory_;
  size_t bytes_;
  int readers_;
  int reader_;
  int64_t at_ = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PATTERNS_PLAIN_RING_H_
