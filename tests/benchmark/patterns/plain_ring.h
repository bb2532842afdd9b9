// The message queue of vLLM as its source describes it, in its plainest form: blocks in shared
// memory, each with one flag that it is written and one for each reader that it has been read, and
// both sides looking at them in a loop that offers the processor. What a queue is measured against.
//
// Of what a value costs it does the same: one copy in, one copy out. What its model has besides is
// left out: pickling, the barrier by a lock around each flag, the socket for values larger than a
// block, and sleeping when nothing has come for long. What a queue of ours has and its model has
// not it cannot do: it hears of nobody's death, and whoever waits keeps a processor busy.
#ifndef COHORT_TESTS_BENCHMARK_PATTERNS_PLAIN_RING_H_
#define COHORT_TESTS_BENCHMARK_PATTERNS_PLAIN_RING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::benchmark {

// Of one process: the writer, or one of the readers. It waits for ever, as its model does. Movable.
class PlainRing {
 public:
  static constexpr int64_t kBlocks = 6;
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;

  // `path`: a file that all have, of zeros or not there. `reader` is 0..readers-1, or -1 for the
  // writer.
  static absl::StatusOr<PlainRing> Open(const std::string& path, int readers, int reader);
  PlainRing(PlainRing&& other) noexcept;
  PlainRing& operator=(PlainRing&& other) = delete;
  ~PlainRing();

  // Errors: INVALID_ARGUMENT (larger than a block).
  absl::Status Enqueue(absl::string_view value);
  // Into `value`, whose memory is used again.
  absl::Status Dequeue(std::string* value);

 private:
  PlainRing(char* memory, size_t bytes, int readers, int reader)
      : memory_(memory), bytes_(bytes), readers_(readers), reader_(reader) {}

  // Of block `at`: first "written", then one for each reader.
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
