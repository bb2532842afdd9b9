// Arrays of numpy, read in place: asking for a buffer takes numpy longer than a small collective.
#ifndef COHORT_CLIENT_PYTHON_CORE_NUMPY_ARRAY_H_
#define COHORT_CLIENT_PYTHON_CORE_NUMPY_ARRAY_H_

#include "base/tensor/tensor.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// Reads an array whose type is exactly numpy.ndarray. Returns false, without an exception, for
// another object, and for an array that needs a buffer: read-only although `writable` is asked
// for, of a type that tensors do not have, or with strides that are no multiples of an element.
bool ReadNumpyArray(PyObject* array, bool writable, Tensor* tensor);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_NUMPY_ARRAY_H_
