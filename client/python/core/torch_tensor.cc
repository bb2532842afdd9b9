#include "client/python/core/torch_tensor.h"

#include "base/tensor/data_type.h"

namespace cohort::python {

bool RequiresGrad(PyObject* array) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  const Object value(PyObject_GetAttr(array, requires_grad));
  PyErr_Clear();
  return value.get() == Py_True;
}

bool HasLazyElements(PyObject* array) {
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  static PyObject* const is_conj = PyUnicode_InternFromString("is_conj");
  const auto is = [&](PyObject* method) {
    const Object value(PyObject_CallMethodObjArgs(array, method, nullptr));
    PyErr_Clear();
    return value.get() == Py_True;
  };
  return is(is_conj) || is(is_neg);
}

bool MayHaveLazyElements(const Tensor& tensor) {
  const DataType type = tensor.type();
  if (type == DataType::kC64 || type == DataType::kC128) return true;
  const bool is_part = type == DataType::kF16 || type == DataType::kF32 || type == DataType::kF64;
  const bool lies_side_by_side =
      tensor.dims() > 0 && tensor.shape().back() > 1 && tensor.strides().back() == 1;
  return is_part && !lies_side_by_side;
}

bool IsTorchBool(PyObject* array) {
  const Object type(PyObject_GetAttrString(array, "dtype"));
  const Object text(type ? PyObject_Str(type.get()) : nullptr);
  PyErr_Clear();
  return text && PyUnicode_CompareWithASCIIString(text.get(), "torch.bool") == 0;
}

bool ReadTorchStream(PyObject* array, Device device, void** stream) {
  *stream = nullptr;
  const Object module(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(array)), "__module__"));
  PyErr_Clear();
  if (!module || PyUnicode_CompareWithASCIIString(module.get(), "torch") != 0) return true;
  const Object cuda(PyImport_ImportModule("torch.cuda"));
  const Object current(
      cuda ? PyObject_CallMethod(cuda.get(), "current_stream", "i", device.index()) : nullptr);
  const Object number(current ? PyObject_GetAttrString(current.get(), "cuda_stream") : nullptr);
  if (!number) return false;
  *stream = PyLong_AsVoidPtr(number.get());
  return PyErr_Occurred() == nullptr;
}

}  // namespace cohort::python
