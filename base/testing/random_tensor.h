// Tensors for tests, in layouts that chance chooses.
#ifndef COHORT_BASE_TESTING_RANDOM_TENSOR_H_
#define COHORT_BASE_TESTING_RANDOM_TENSOR_H_

#include <functional>
#include <random>
#include <string>

#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"

namespace cohort {

// A view into memory of its own: dimensions in any order, every second element, backwards, with
// gaps; or contiguous, every third time.
class RandomTensor {
 public:
  using Allocator = std::function<Tensor(DataType, const Shape&)>;

  RandomTensor(DataType type, const Shape& shape, std::mt19937& random,
               const Allocator& allocate = Tensor::Zeros);

  const Tensor& tensor() const { return tensor_; }
  // Whether something was written beside the elements.
  bool Strayed() const;

 private:
  Tensor memory_;
  Tensor tensor_;
};

// In order, one behind the other; found one at a time.
std::string ElementsOf(const Tensor& tensor);
void SetElements(const Tensor& tensor, absl::string_view elements);

}  // namespace cohort

#endif  // COHORT_BASE_TESTING_RANDOM_TENSOR_H_
