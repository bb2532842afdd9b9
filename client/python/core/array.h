// Arrays of Python as tensors, and tensors as arrays of Python, without a copy.
#ifndef COHORT_CLIENT_PYTHON_CORE_ARRAY_H_
#define COHORT_CLIENT_PYTHON_CORE_ARRAY_H_

#include <optional>

#include "base/tensor/tensor.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

enum class Access { kRead, kWrite };

// An array that a call uses: of PyTorch or another library with DLPack's exchange of C functions,
// with the buffer protocol (numpy), or with __dlpack__.
class Array {
 public:
  // Returns false with an exception: TypeError (no array), ValueError (read-only, a type or layout
  // that tensors do not have, it requires grad, or it is a lazy conjugate or negative). `name` is
  // the argument's name in errors.
  bool Read(PyObject* array, const char* name, Access access);
  // Valid while this lives.
  const Tensor& tensor() const { return tensor_; }
  // For an array on a GPU: the stream on which its library works now. A call on that stream comes
  // after the work that writes the array, and before the work that uses the result. Absent: the
  // array is in host memory.
  const std::optional<void*>& stream() const { return stream_; }
  // Returns a tensor that keeps the array and its buffer, for calls that go on after this. Any
  // thread may drop it.
  Tensor Keep();

 private:
  bool ReadBuffer(PyObject* array, const char* name, Access access);
  bool ReadDLPack(PyObject* array, const char* name);

  // Other threads may drop theirs while the call runs.
  Object array_;
  Buffer buffer_;
  Tensor tensor_;
  std::optional<void*> stream_;
};

// Adds the type of memory that belongs to a Tensor: it has the buffer protocol and __dlpack__.
// Returns false with an exception.
bool AddMemory(PyObject* module);
// Returns null with an exception.
PyObject* WriteMemory(Tensor tensor);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_ARRAY_H_
