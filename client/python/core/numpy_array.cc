#include "client/python/core/numpy_array.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/tensor/data_type.h"
#include "client/python/core/convert.h"

namespace cohort::python {
namespace {

// The beginning of PyArray_Descr, which is the same in numpy 1 and 2.
struct Descriptor {
  PyObject head;
  PyTypeObject* element;
  char kind;
  char type;
  char byte_order;
  char former_flags;
  int number;
};

// The beginning of PyArrayObject, which numpy's ABI promises.
struct NumpyArray {
  PyObject head;
  char* data;
  int dimensions;
  Py_ssize_t* shape;
  Py_ssize_t* strides;  // in bytes
  PyObject* base;
  Descriptor* descriptor;
  int flags;
};
constexpr int kWriteable = 0x0400;

// By numpy's numbers of types; 0: tensors have no such type.
constexpr DataType kNone = DataType{0};
constexpr DataType kLong = sizeof(long) == 8 ? DataType::kI64 : DataType::kI32;
constexpr DataType kUnsignedLong = sizeof(long) == 8 ? DataType::kU64 : DataType::kU32;
constexpr DataType kTypes[] = {DataType::kBool, DataType::kI8,  DataType::kU8,  DataType::kI16,
                               DataType::kU16,  DataType::kI32, DataType::kU32, kLong,
                               kUnsignedLong,   DataType::kI64, DataType::kU64, DataType::kF32,
                               DataType::kF64,  kNone,          DataType::kC64, DataType::kC128,
                               kNone,           kNone,          kNone,          kNone,
                               kNone,           kNone,          kNone,          DataType::kF16};
constexpr int kTypeCount = static_cast<int>(sizeof(kTypes) / sizeof(kTypes[0]));

// The type of elements that another library has added to numpy, such as ml_dtypes.bfloat16. It has
// a number of its own in each process.
constexpr int kFirstAdded = 256;
constexpr std::pair<absl::string_view, DataType> kAddedTypes[] = {
    {"bfloat16", DataType::kBF16},
    {"float8_e4m3fn", DataType::kF8E4M3},
    {"float8_e5m2", DataType::kF8E5M2},
    {"float8_e8m0fnu", DataType::kF8E8M0},
    {"float8_e4m3fnuz", DataType::kF8E4M3Fnuz},
    {"float8_e5m2fnuz", DataType::kF8E5M2Fnuz},
    {"float4_e2m1fn", DataType::kF4E2M1},
    {"float6_e2m3fn", DataType::kF6E2M3},
    {"float6_e3m2fn", DataType::kF6E3M2}};
DataType TypeOfAdded(Descriptor& descriptor) {
  static int known_number = -1;
  static DataType known_type = kNone;
  if (descriptor.number == known_number) return known_type;
  const Object name(PyObject_GetAttrString(&descriptor.head, "name"));
  std::string text;
  if (!name || !Read(name.get(), "name", &text)) PyErr_Clear();
  known_type = kNone;
  for (const auto& [name_of_added, type] : kAddedTypes) {
    if (text == name_of_added) known_type = type;
  }
  known_number = descriptor.number;
  return known_type;
}

DataType TypeOf(Descriptor& descriptor) {
  if (descriptor.number >= kFirstAdded) return TypeOfAdded(descriptor);
  return descriptor.number < 0 || descriptor.number >= kTypeCount ? kNone
                                                                  : kTypes[descriptor.number];
}

// Whether the array has the facts that its buffer has. If not, this numpy has another layout.
bool IsAsItsBuffer(PyObject* object) {
  Buffer buffer;
  if (!buffer.Get(object, kBufferFormat | kBufferStrides)) {
    PyErr_Clear();
    return false;
  }
  const PyBufferView& view = buffer.view();
  const auto& array = *reinterpret_cast<const NumpyArray*>(object);
  const size_t bytes = static_cast<size_t>(view.ndim) * sizeof(Py_ssize_t);
  return array.data == view.buf && array.dimensions == view.ndim &&
         ((array.flags & kWriteable) == 0) == (view.readonly != 0) &&
         (bytes == 0 || (std::memcmp(array.shape, view.shape, bytes) == 0 &&
                         std::memcmp(array.strides, view.strides, bytes) == 0));
}

// numpy.ndarray, once one was seen, and arrays are as their buffers.
PyTypeObject* array_type = nullptr;
PyTypeObject* other_type = nullptr;  // the last type that was seen and is not numpy.ndarray

bool IsNumpyArray(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  if (type == array_type) return true;
  if (array_type != nullptr || type == other_type) return false;
  PyObject* const numpy = PyImport_GetModule(Object(PyUnicode_FromString("numpy")).get());
  const Object module(numpy);
  const Object known(numpy == nullptr ? nullptr : PyObject_GetAttrString(numpy, "ndarray"));
  // `object` itself may have elements that buffers cannot describe.
  const Object probe(known.get() == reinterpret_cast<PyObject*>(type)
                         ? PyObject_CallMethod(numpy, "zeros", "((ii))", 2, 3)
                         : nullptr);
  PyErr_Clear();
  if (probe && IsAsItsBuffer(probe.get())) {
    Py_INCREF(type);
    array_type = type;
    return true;
  }
  Py_INCREF(type);
  Py_XDECREF(other_type);
  other_type = type;
  return false;
}

}  // namespace

bool ReadNumpyArray(PyObject* object, bool writable, Tensor* tensor) {
  if (!IsNumpyArray(object)) return false;
  const auto& array = *reinterpret_cast<const NumpyArray*>(object);
  if (writable && (array.flags & kWriteable) == 0) return false;
  if (array.descriptor->byte_order == '>') return false;
  const DataType type = TypeOf(*array.descriptor);
  if (type == kNone) return false;
  const auto bytes = static_cast<Py_ssize_t>(SizeOf(type));
  Shape strides;
  for (int i = 0; i < array.dimensions; ++i) {
    if (array.strides[i] % bytes != 0) return false;
    strides.push_back(array.strides[i] / bytes);
  }
  *tensor = Tensor::Strided(array.data, type, Shape(array.shape, array.shape + array.dimensions),
                            std::move(strides));
  return true;
}

}  // namespace cohort::python
