// Inputs for tests of the layers above groups: in random layouts, in the memory that a form uses.
#ifndef COHORT_TESTS_PARALLEL_TESTING_PLACED_TENSOR_H_
#define COHORT_TESTS_PARALLEL_TESTING_PLACED_TENSOR_H_

#include <random>

#include "base/tensor/tensor.h"
#include "base/testing/random_tensor.h"
#include "client/collective/group.h"
#include "worker/group/testing/tensor_model.h"

namespace cohort::testing {

// In memory of the group or, on the host and at random, of the process.
class PlacedTensor {
 public:
  PlacedTensor(client::Group& group, Device device, const worker::TensorModel& model,
               std::mt19937& random)
      : elements_(model.bytes),
        memory_(model.type, model.shape, random, [&](DataType type, const Shape& shape) {
          if (device.is_host() && random() % 2 == 0) return Tensor::Zeros(type, shape);
          block_ = group.Allocate(type, shape, device).value();
          return Tensor(block_.data(), type, shape, block_.owner());
        }) {
    SetElements(memory_.tensor(), elements_);
    const Tensor& view = memory_.tensor();
    tensor_ =
        Tensor::Strided(view.data(), view.type(), view.shape(), view.strides(), nullptr, device);
  }

  // For the group's collectives.
  const Tensor& tensor() const { return tensor_; }
  // True if its elements, and the memory beside them, are unchanged.
  bool Untouched() const { return ElementsOf(memory_.tensor()) == elements_ && !memory_.Strayed(); }

 private:
  const std::string elements_;
  Tensor block_;
  RandomTensor memory_;
  Tensor tensor_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_TESTING_PLACED_TENSOR_H_
