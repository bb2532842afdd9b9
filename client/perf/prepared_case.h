// A case with its tensors, as one rank has them.
#ifndef COHORT_CLIENT_PERF_PREPARED_CASE_H_
#define COHORT_CLIENT_PERF_PREPARED_CASE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/perf/cases.h"
#include "client/perf/measure.h"
#include "client/perf/pattern.h"

namespace cohort::perf {

// Borrows the group and the options.
class Work {
 public:
  // Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<Work> Make(client::Group& group, const Case& run, bool in_place,
                                   const MeasureOptions& options);

  absl::Status Run() const;

  // Fills the input with the pattern, and the rest with values that are no result. Errors: those of
  // MeasureOptions::copy.
  absl::Status Fill(const Pattern& pattern) const;
  // After Run: how many elements of this rank's output are wrong. Errors: the same.
  absl::StatusOr<int64_t> CountWrong(const Pattern& pattern) const;

 private:
  Work(client::Group& group, const Case& run, const MeasureOptions& options)
      : group_(group), run_(run), options_(options) {}

  bool is_root() const { return group_.rank() == run_.root; }
  int64_t part() const { return run_.count / (HasDim(run_.operation) ? group_.size() : 1); }
  // In elements; 0: this rank has none.
  int64_t InputCount() const;
  int64_t OutputCount() const;
  bool on_gpu() const { return options_.copy != nullptr; }
  absl::Status MakeTensors(bool in_place);
  absl::StatusOr<Tensor> Allocate(int64_t count) const;
  // A host tensor for the tensor's elements: the tensor itself, or for a GPU tensor a new one.
  Tensor ImageOf(const Tensor& tensor) const;
  absl::Status Copy(const Tensor& from, const Tensor& to) const;

  client::Group& group_;
  const Case run_;
  const MeasureOptions& options_;
  Tensor input_;
  Tensor output_;
  Tensor input_image_;
  Tensor output_image_;
};

}  // namespace cohort::perf

#endif  // COHORT_CLIENT_PERF_PREPARED_CASE_H_
