// Inputs with known results, and the comparison of results with them.
#ifndef COHORT_CLIENT_PERF_PATTERN_H_
#define COHORT_CLIENT_PERF_PATTERN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"

namespace cohort::perf {

// Rank r's input is a sequence of small whole numbers that repeats after 1021 elements. 1021 is a
// prime, so that parts in a wrong place show. The numbers are small, so that sums are exact in any
// order, and a rounded result is rounded once. Hence results are compared bit by bit. Another
// `round` has other numbers: elements that an earlier run left there are wrong.
//
// Thread-compatible. If the type does not have the reduction, the methods about reduced elements
// are not called.
class Pattern {
 public:
  Pattern(DataType type, const Reduction& reduction, int ranks, uint64_t round);

  // Elements `first`, first + 1, ... of the rank's sequence, `count` of them.
  void Fill(int rank, int64_t first, int64_t count, void* elements) const;
  // The number of `elements` that differ from these.
  int64_t CountWrong(int rank, int64_t first, int64_t count, const void* elements) const;
  // The same for the reduction of all ranks' sequences.
  int64_t CountWrongReduced(int64_t first, int64_t count, const void* elements) const;

 private:
  double Value(int rank, int64_t at) const;
  std::string Sequence(int rank) const;
  std::string ReducedSequence() const;
  double ReducedFloating(int64_t at) const;
  uint64_t ReducedInteger(int64_t at) const;
  bool ReducedBool(int64_t at) const;

  const DataType type_;
  const Reduction reduction_;
  const int ranks_;
  const uint64_t round_;
};

}  // namespace cohort::perf

#endif  // COHORT_CLIENT_PERF_PATTERN_H_
