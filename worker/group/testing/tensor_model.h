// A tensor in its plainest form, and the results of collectives on it.
#ifndef COHORT_WORKER_GROUP_TESTING_TENSOR_MODEL_H_
#define COHORT_WORKER_GROUP_TESTING_TENSOR_MODEL_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "base/tensor/tensor.h"

namespace cohort::worker {

struct TensorModel {
  DataType type = DataType::kU8;
  Shape shape;
  std::string bytes;  // contiguous elements
};

// Returns `shape` with another extent along `dim`.
Shape With(Shape shape, int dim, int64_t extent);

TensorModel Slice(const TensorModel& whole, int dim, int64_t begin, int64_t size);
// Concatenates the parts along `dim`.
TensorModel Join(const std::vector<TensorModel>& parts, int dim);
// Reduces the inputs in order; rounds once.
TensorModel Reduced(const std::vector<TensorModel>& inputs, const Reduction& reduction);

// Floating types get small numbers, so that a sum of a few is finite. Other types get any bytes.
TensorModel RandomModel(DataType type, const Shape& shape, std::mt19937& random);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_TENSOR_MODEL_H_
