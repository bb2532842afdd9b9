// Random tensor maps for tests, and a text of everything in a map.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_TESTING_RANDOM_MAP_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_TESTING_RANDOM_MAP_H_

#include <functional>
#include <random>
#include <string>

#include "base/tensor/tensor.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// On the host, of any type, layout and size up to some ten KiB; often small, sometimes empty or of
// no dimensions.
Tensor RandomHostTensor(std::mt19937& random);

// Nested maps and lists, of at most `depth` levels. `tensor` makes the tensors; without it the map
// has no tensors.
TensorMap RandomMap(std::mt19937& random, int depth, const std::function<Tensor()>& tensor);

// The same for maps that are the same in keys, order, kinds and values, and in the tensors' types,
// shapes and elements. `host` is where a tensor's elements can be read.
std::string Describe(const TensorMap& map,
                     const std::function<Tensor(const Tensor&)>& host = nullptr);
std::string Describe(const Value& value,
                     const std::function<Tensor(const Tensor&)>& host = nullptr);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_TESTING_RANDOM_MAP_H_
