// A case with its tensors, as one rank has them.
#ifndef COHORT_CLIENT_PERF_WORK_H_
#define COHORT_CLIENT_PERF_WORK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/perf/pattern.h"
#include "client/perf/plan.h"

namespace cohort::perf {

// Borrows the group.
class Work {
 public:
  // Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<Work> Make(client::Group& group, const Case& run, bool in_place,
                                   bool registered);

  absl::Status Run() const;

  // What the pattern says into the input, and into the rest what no result is.
  void Fill(const Pattern& pattern) const;
  // After Run: how many elements of this rank's output are wrong.
  int64_t CountWrong(const Pattern& pattern) const;

 private:
  Work(client::Group& group, const Case& run) : group_(group), run_(run) {}

  bool is_root() const { return group_.rank() == run_.root; }
  int64_t part() const { return run_.count / (HasParts(run_.operation) ? group_.size() : 1); }
  // In elements; 0: this rank has none.
  int64_t InputCount() const;
  int64_t OutputCount() const;
  absl::Status MakeTensors(bool in_place, bool registered);
  absl::StatusOr<Tensor> Allocate(int64_t count, bool registered) const;

  client::Group& group_;
  const Case run_;
  Tensor input_;
  Tensor output_;
};

}  // namespace cohort::perf

#endif  // COHORT_CLIENT_PERF_WORK_H_
