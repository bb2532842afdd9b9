// One file, though long: each kind of array is read and shown here, by the same tables.
#include "client/python/core/array.h"

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/data_type.h"
#include "base/tensor/dlpack.h"
#include "base/threads/thread.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/dlpack_exchange.h"
#include "client/python/core/errors.h"
#include "client/python/core/numpy_array.h"
#include "client/python/core/torch_tensor.h"

namespace cohort::python {
namespace {

// The type of elements with a format of Python's struct module, or 0.
DataType TypeOfFormat(const char* format, Py_ssize_t bytes) {
  if (format == nullptr) return DataType::kU8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool complex = *format == 'Z';
  if (complex) ++format;
  if (*format == '\0' || format[1] != '\0') return DataType{0};
  if (complex) {
    return *format == 'f' ? DataType::kC64 : *format == 'd' ? DataType::kC128 : DataType{0};
  }
  switch (*format) {
    case '?':
      return DataType::kBool;
    case 'e':
      return DataType::kF16;
    case 'f':
      return DataType::kF32;
    case 'd':
      return DataType::kF64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return bytes == 1   ? DataType::kI8
             : bytes == 2 ? DataType::kI16
             : bytes == 4 ? DataType::kI32
                          : DataType::kI64;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return bytes == 1   ? DataType::kU8
             : bytes == 2 ? DataType::kU16
             : bytes == 4 ? DataType::kU32
                          : DataType::kU64;
    default:
      return DataType{0};
  }
}

// The format that numpy understands, or null.
const char* FormatOf(DataType type) {
  switch (type) {
    case DataType::kBool:
      return "?";
    case DataType::kI8:
      return "b";
    case DataType::kU8:
      return "B";
    case DataType::kI16:
      return "h";
    case DataType::kU16:
      return "H";
    case DataType::kI32:
      return "i";
    case DataType::kU32:
      return "I";
    case DataType::kI64:
      return "q";
    case DataType::kU64:
      return "Q";
    case DataType::kF16:
      return "e";
    case DataType::kF32:
      return "f";
    case DataType::kF64:
      return "d";
    case DataType::kC64:
      return "Zf";
    case DataType::kC128:
      return "Zd";
    case DataType::kBF16:
    case DataType::kF8E4M3:
    case DataType::kF8E5M2:
    case DataType::kF8E8M0:
    case DataType::kF8E4M3Fnuz:
    case DataType::kF8E5M2Fnuz:
    case DataType::kF4E2M1x2:
      break;
    // numpy knows them by ml_dtypes alone: it gets their bytes.
    case DataType::kF4E2M1:
    case DataType::kF6E2M3:
    case DataType::kF6E3M2:
      return "B";
  }
  return nullptr;
}

// Puts the name of the argument before the text of another library's exception, without the stack
// that PyTorch adds in further lines.
bool RefuseRaised(const char* name) {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return false;
  const Object error = TakeRaised();
  const Object text(PyObject_Str(error.get()));
  std::string line;
  if (text) Read(text.get(), name, &line);
  PyErr_Clear();
  PyErr_Format(PyExc_ValueError, "%s: %s", name, line.substr(0, line.find('\n')).c_str());
  return false;
}

bool Refuse(const char* name, const absl::Status& status) {
  PyErr_Format(PyExc_ValueError, "%s: %s", name, std::string(status.message()).c_str());
  return false;
}

bool RefuseGrad(const char* name) {
  PyErr_Format(PyExc_ValueError,
               "%s: the tensor requires grad, so a call may not change it in place; pass "
               "tensor.detach()",
               name);
  return false;
}

// numpy.ma.MaskedArray. Its buffer has no mask.
bool IsMasked(PyObject* array) {
  return PyObject_HasAttrString(array, "mask") != 0 && PyObject_HasAttrString(array, "filled") != 0;
}

bool RefuseMask(const char* name) {
  PyErr_Format(PyExc_ValueError,
               "%s: a masked array would lose its mask; pass array.filled(value), or array.data to "
               "ignore the mask",
               name);
  return false;
}

bool RefuseFormat(const char* name, const char* format) {
  const bool is_big_endian = *format == '>' || *format == '!';
  PyErr_Format(PyExc_ValueError, "%s: elements of format %s are not supported%s", name, format,
               is_big_endian ? ": they are big-endian; pass "
                               "array.astype(array.dtype.newbyteorder('='))"
                             : "");
  return false;
}

bool RefuseLazyElements(const char* name) {
  PyErr_Format(PyExc_ValueError,
               "%s: the tensor is the conjugate or the negative of its memory; pass "
               "tensor.resolve_conj().resolve_neg()",
               name);
  return false;
}

}  // namespace

bool Array::Read(PyObject* array, const char* name, Access access) {
  array_ = Object::Borrowed(array);
  if (ReadNumpyArray(array, access == Access::kWrite, &tensor_)) return true;
  const ExchangeApi* const api = ExchangeApiOf(Py_TYPE(array));
  if (api != nullptr) {
    if (access == Access::kWrite && RequiresGrad(array)) return RefuseGrad(name);
    DLTensor view;
    if (api->view(array, &view) != 0) return RefuseRaised(name);
    absl::StatusOr<Tensor> tensor = ViewDLPack(view, nullptr);
    if (!tensor.ok()) return Refuse(name, tensor.status());
    // The exchange of C functions does not look at it.
    if (MayHaveLazyElements(*tensor) && HasLazyElements(array)) return RefuseLazyElements(name);
    tensor_ = *std::move(tensor);
    return tensor_.device().is_host() ||
           api->current_stream(kDLCUDA, tensor_.device().index(), &stream_.emplace()) == 0;
  }
  if (ReadBuffer(array, name, access)) return true;
  if (PyErr_Occurred() != nullptr) return false;
  if (access == Access::kWrite && RequiresGrad(array)) return RefuseGrad(name);
  if (HasLazyElements(array)) return RefuseLazyElements(name);
  return ReadDLPack(array, name);
}

// Returns false without an exception if the object has no buffer.
bool Array::ReadBuffer(PyObject* array, const char* name, Access access) {
  const int flags = kBufferFormat | kBufferStrides;
  if (!buffer_.Get(array, access == Access::kWrite ? flags | kBufferWritable : flags)) {
    const bool has_no_buffer = PyErr_ExceptionMatches(PyExc_TypeError) != 0;
    PyErr_Clear();
    if (has_no_buffer) return false;
    Buffer readable;
    if (access == Access::kWrite && readable.Get(array, flags)) {
      PyErr_Format(PyExc_ValueError, "%s: the array is read-only", name);
      return false;
    }
    PyErr_Clear();
    return false;  // for example, elements that buffers cannot describe
  }
  if (IsMasked(array)) return RefuseMask(name);
  const PyBufferView& view = buffer_.view();
  const DataType type = TypeOfFormat(view.format, view.itemsize);
  if (!IsDataType(static_cast<int>(type)) || SizeOf(type) != view.itemsize) {
    return RefuseFormat(name, view.format);
  }
  Shape strides;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.strides[i] % view.itemsize != 0) {
      PyErr_Format(PyExc_ValueError,
                   "%s: the stride of dimension %d is %zd bytes, no multiple of an element's %zd",
                   name, i, view.strides[i], view.itemsize);
      return false;
    }
    strides.push_back(view.strides[i] / view.itemsize);
  }
  tensor_ = Tensor::Strided(view.buf, type, Shape(view.shape, view.shape + view.ndim),
                            std::move(strides));
  return true;
}

bool Array::ReadDLPack(PyObject* array, const char* name) {
  // Versions of PyTorch before 2.10 export neither tensors that require grad nor bool.
  Object exported = Object::Borrowed(array);
  if (RequiresGrad(array)) exported = Object(PyObject_CallMethod(array, "detach", nullptr));
  if (!exported) return RefuseRaised(name);
  const bool is_bool = IsTorchBool(array);
  if (is_bool) {
    const Object module(PyImport_ImportModule("torch"));
    const Object byte(module ? PyObject_GetAttrString(module.get(), "uint8") : nullptr);
    if (!byte) return false;
    exported = Object(PyObject_CallMethod(exported.get(), "view", "O", byte.get()));
    if (!exported) return RefuseRaised(name);
  }
  const Object method(PyObject_GetAttrString(exported.get(), "__dlpack__"));
  if (!method) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "%s: expected an array of numpy or PyTorch, or an object with the buffer protocol "
                 "or __dlpack__, got %S",
                 name, Py_TYPE(array));
    return false;
  }
  const Object capsule(PyObject_CallFunctionObjArgs(method.get(), nullptr));
  if (!capsule) return RefuseRaised(name);
  void* const managed = PyCapsule_GetPointer(capsule.get(), "dltensor");
  if (managed == nullptr) return RefuseRaised(name);
  // A used capsule does not free the tensor.
  PyCapsule_SetName(capsule.get(), "used_dltensor");
  absl::StatusOr<Tensor> tensor = FromDLPack(static_cast<DLManagedTensor*>(managed));
  if (!tensor.ok()) return Refuse(name, tensor.status());
  tensor_ = *std::move(tensor);
  if (is_bool) {
    tensor_ = Tensor::Strided(tensor_.data(), DataType::kBool, tensor_.shape(), tensor_.strides(),
                              tensor_.owner(), tensor_.device());
  }
  return tensor_.device().is_host() || ReadTorchStream(array, tensor_.device(), &stream_.emplace());
}

Tensor Array::Keep() {
  struct Kept {
    Object array;
    Buffer buffer;
    Tensor tensor;  // which may have an owner, too
  };
  const std::shared_ptr<Kept> owner(new Kept{std::move(array_), std::move(buffer_), tensor_},
                                    [](Kept* kept) {
                                      const GilAcquire gil;
                                      delete kept;
                                    });
  return Tensor::Strided(tensor_.data(), tensor_.type(), tensor_.shape(), tensor_.strides(), owner,
                         tensor_.device());
}

namespace {

// Memory of the library, contiguous.
struct Memory {
  PyObject_HEAD;
  Tensor* tensor;
  Py_ssize_t* shape;  // and then the strides, in bytes
};

PyTypeObject* memory_type = nullptr;

Memory* AsMemory(PyObject* object) { return reinterpret_cast<Memory*>(object); }

int GetBuffer(PyObject* self, PyBufferView* view, int flags) {
  const Tensor& tensor = *AsMemory(self)->tensor;
  const char* const format = FormatOf(tensor.type());
  if (format == nullptr || !tensor.device().is_host()) {
    PyErr_Format(PyExc_BufferError, "memory of %s has no buffer; use __dlpack__",
                 tensor.ToString().c_str());
    return -1;
  }
  *view = {};
  view->buf = tensor.data();
  view->obj = self;
  Py_INCREF(self);
  view->len = static_cast<Py_ssize_t>(tensor.bytes());
  view->itemsize = static_cast<Py_ssize_t>(SizeOf(tensor.type()));
  view->ndim = tensor.dims();
  if ((flags & kBufferFormat) != 0) view->format = const_cast<char*>(format);
  if ((flags & kBufferNd) != 0) view->shape = AsMemory(self)->shape;
  if ((flags & kBufferStrides) == kBufferStrides) {
    view->strides = AsMemory(self)->shape + tensor.dims();
  }
  return 0;
}

void DropCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) return;
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

PyObject* DLPack(PyObject* self, PyObject* /*args*/, PyObject* /*keywords*/) {
  DLManagedTensor* const managed = ToDLPack(*AsMemory(self)->tensor);
  PyObject* const capsule = PyCapsule_New(managed, "dltensor", DropCapsule);
  if (capsule == nullptr) managed->deleter(managed);
  return capsule;
}

PyObject* DLPackDevice(PyObject* self, PyObject* /*args*/) {
  const Device device = AsMemory(self)->tensor->device();
  return device.is_host() ? Py_BuildValue("(ii)", kDLCPU, 0)
                          : Py_BuildValue("(ii)", kDLCUDA, device.index());
}

void Deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  if (!Forked()) delete AsMemory(self)->tensor;
  delete[] AsMemory(self)->shape;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef memory_methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(DLPack)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {"__dlpack_device__", DLPackDevice, METH_NOARGS, nullptr},
    {}};

}  // namespace

bool AddMemory(PyObject* module) {
  PyType_Slot slots[] = {{kGetBufferSlot, reinterpret_cast<void*>(GetBuffer)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
                         {Py_tp_methods, memory_methods},
                         {}};
  PyType_Spec spec = {"cohort._core.Memory", sizeof(Memory), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  const Object type(PyType_FromSpec(&spec));
  if (!type) return false;
  memory_type = reinterpret_cast<PyTypeObject*>(type.get());
  return PyModule_AddObjectRef(module, "Memory", type.get()) == 0;
}

namespace {

// The memory for Python, which drops it on any thread that has the interpreter's lock, also in a
// forked child. There, the memory is the parent's, and so it stays. Freeing GPU memory waits for
// the GPU, whose work may wait for other ranks, so another thread frees it.
Tensor FreedSafely(const Tensor& tensor) {
  const bool waits = tensor.device().is_cuda();
  std::shared_ptr<const void> owner(
      tensor.data(), [kept = tensor.owner(), waits](const void*) mutable {
        if (Forked()) {
          new std::shared_ptr<const void>(std::move(kept));
        } else if (waits) {
          // Without a thread, this one frees it.
          StartDetachedThread("cohort-free", [kept = std::move(kept)] {}).IgnoreError();
        }
      });
  return Tensor::Strided(tensor.data(), tensor.type(), tensor.shape(), tensor.strides(),
                         std::move(owner), tensor.device());
}

}  // namespace

PyObject* WriteMemory(Tensor tensor) {
  tensor = FreedSafely(tensor);
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(memory_type, Py_tp_alloc));
  PyObject* const object = allocate(memory_type, 0);
  if (object == nullptr) return nullptr;
  const auto dims = static_cast<size_t>(tensor.dims());
  Memory& memory = *AsMemory(object);
  memory.shape = new Py_ssize_t[2 * dims];
  for (size_t i = 0; i < dims; ++i) {
    memory.shape[i] = static_cast<Py_ssize_t>(tensor.shape()[i]);
    memory.shape[dims + i] = static_cast<Py_ssize_t>(tensor.strides()[i] * SizeOf(tensor.type()));
  }
  memory.tensor = new Tensor(std::move(tensor));
  return object;
}

}  // namespace cohort::python
