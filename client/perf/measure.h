// Runs one case on all ranks of a group: its time, and whether its results are right.
#ifndef COHORT_CLIENT_PERF_MEASURE_H_
#define COHORT_CLIENT_PERF_MEASURE_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/perf/cases.h"

namespace cohort::perf {

// The same on all ranks.
struct MeasureOptions {
  bool registered = true;  // tensors from Group::Allocate; else memory of this process
  // If set, tensors are on the group's GPU, and this copies them from and to the host, where they
  // are filled and compared. Blocks. Absent: tensors are on the host.
  std::function<absl::Status(const Tensor& from, const Tensor& to)> copy;
  int warmup = 5;  // calls before the timed ones
  // The number of timed calls; 0: rank 0 chooses it for about `duration`.
  int iterations = 0;
  absl::Duration duration = absl::Milliseconds(50);
  int checks = 1;  // calls whose results are compared, each with other inputs
};

// The result of one way to run a case. Calls are timed in about ten batches; a batch's time is the
// average of its calls on its slowest rank.
struct Figures {
  double median_us = 0;          // of the batches
  double mean_us = 0;            // of all calls
  double min_us = 0;             // of the fastest batch
  int iterations = 0;            // calls that were timed
  std::optional<int64_t> wrong;  // elements, of all ranks and checks; absent: nothing was checked
};

struct Row {
  Case run;
  std::optional<Figures> out_of_place;
  std::optional<Figures> in_place;
};

// All ranks call it with the same arguments, and get the same figures. Errors: those of Group.
absl::StatusOr<Row> Measure(client::Group& group, const Case& run, const MeasureOptions& options,
                            const Clock& clock);

}  // namespace cohort::perf

#endif  // COHORT_CLIENT_PERF_MEASURE_H_
