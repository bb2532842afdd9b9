// Questions to tensors of PyTorch that DLPack does not answer. An object of another library answers
// each with no.
#ifndef COHORT_CLIENT_PYTHON_CORE_TORCH_TENSOR_H_
#define COHORT_CLIENT_PYTHON_CORE_TORCH_TENSOR_H_

#include "base/tensor/device.h"
#include "base/tensor/tensor.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// Whether autograd follows changes of the tensor.
bool RequiresGrad(PyObject* array);
// Whether the tensor stands for the conjugate or the negative of its memory, which it shares with
// another tensor.
bool HasLazyElements(PyObject* array);
// Whether it is worth to ask HasLazyElements, which takes as long as the rest of a read: only
// complex numbers are conjugates, and only their imaginary parts are negatives, and those do not
// lie side by side.
bool MayHaveLazyElements(const Tensor& tensor);
bool IsTorchBool(PyObject* array);
// The stream on which PyTorch works now; the default stream, if `array` is of another library.
// Returns false with an exception.
bool ReadTorchStream(PyObject* array, Device device, void** stream);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_TORCH_TENSOR_H_
