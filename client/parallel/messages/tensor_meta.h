// A tensor's type, shape and place: the description that travels before its elements.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_TENSOR_META_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_TENSOR_META_H_

#include <string>

#include "base/tensor/data_type.h"
#include "base/tensor/device.h"
#include "base/tensor/tensor.h"

namespace cohort::parallel {

struct TensorMeta {
  DataType type = DataType::kU8;
  Shape shape = {0};
  // In GPU memory: of the sender's GPU for the sender, of the receiver's for the receiver.
  bool on_device = false;

  // Precondition: the bytes fit int64_t, as those of all received metas do.
  int64_t bytes() const { return ElementCount(shape) * SizeOf(type); }

  friend bool operator==(const TensorMeta& a, const TensorMeta& b) {
    return a.type == b.type && a.shape == b.shape && a.on_device == b.on_device;
  }
  friend bool operator!=(const TensorMeta& a, const TensorMeta& b) { return !(a == b); }
};

inline TensorMeta MetaOf(const Tensor& tensor) {
  return {tensor.type(), tensor.shape(), tensor.device().is_cuda()};
}

// Such as: bf16 [3, 4], or, on a GPU: bf16 [3, 4] on a GPU
std::string ToString(const TensorMeta& meta);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_TENSOR_META_H_
