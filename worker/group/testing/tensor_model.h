// A tensor in its plainest form, and what verbs make of it.
#ifndef COHORT_WORKER_GROUP_TESTING_TENSOR_MODEL_H_
#define COHORT_WORKER_GROUP_TESTING_TENSOR_MODEL_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/data_type.h"
#include "base/reduction.h"
#include "base/tensor.h"

namespace cohort::worker {

struct TensorModel {
  DataType type = DataType::kU8;
  Shape shape;
  std::string bytes;  // of contiguous elements
};

// With another extent of one dimension.
Shape With(Shape shape, int dim, int64_t extent);

TensorModel Slice(const TensorModel& whole, int dim, int64_t begin, int64_t size);
// One behind the other along `dim`.
TensorModel Join(const std::vector<TensorModel>& parts, int dim);
// In the order given, rounded once.
TensorModel Reduced(const std::vector<TensorModel>& inputs, const Reduction& reduction);

// Of floating types small numbers, which no sum of a few makes infinite; of others anything.
TensorModel RandomModel(DataType type, const Shape& shape, std::mt19937& random);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_TENSOR_MODEL_H_
