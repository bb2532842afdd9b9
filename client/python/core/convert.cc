#include "client/python/core/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace cohort::python {
namespace {

bool WrongType(PyObject* from, const char* name, const char* expected) {
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError, "%s: expected %s, got %S", name, expected, Py_TYPE(from));
  return false;
}

}  // namespace

bool Read(PyObject* from, const char* name, bool* to) {
  if (!PyBool_Check(from)) return WrongType(from, name, "a bool");
  *to = from == Py_True;
  return true;
}

bool Read(PyObject* from, const char* name, int64_t* to) {
  // Numbers of numpy and torch have __index__.
  const Object number(PyNumber_Index(from));
  if (!number) return WrongType(from, name, "an int");
  *to = PyLong_AsLongLong(number.get());
  if (*to != -1 || PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  PyErr_Format(PyExc_ValueError, "%s: %S is out of range", name, from);
  return false;
}

bool Read(PyObject* from, const char* name, int* to) {
  int64_t number = 0;
  if (!Read(from, name, &number)) return false;
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) {
    PyErr_Format(PyExc_ValueError, "%s: %S is out of range", name, from);
    return false;
  }
  *to = static_cast<int>(number);
  return true;
}

bool Read(PyObject* from, const char* name, double* to) {
  *to = PyFloat_AsDouble(from);
  if (*to == -1 && PyErr_Occurred() != nullptr) return WrongType(from, name, "a number");
  return true;
}

bool Read(PyObject* from, const char* name, std::string* to) {
  Blob blob;
  if (!Read(from, name, &blob)) return false;
  const std::string& text = blob.bytes;
  // A str has a UTF-8 form if it was read.
  if (!PyUnicode_Check(from) &&
      !Object(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict"))) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: the bytes are not UTF-8", name);
    return false;
  }
  *to = std::move(blob.bytes);
  return true;
}

std::vector<std::string> BytesOf(std::vector<Blob> blobs) {
  std::vector<std::string> bytes;
  bytes.reserve(blobs.size());
  for (Blob& blob : blobs) bytes.push_back(std::move(blob.bytes));
  return bytes;
}

bool Read(PyObject* from, const char* name, Blob* to) {
  if (PyUnicode_Check(from)) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(from, &size);
    if (text == nullptr) {
      PyErr_Clear();
      PyErr_Format(PyExc_ValueError, "%s: the text has no UTF-8 form", name);
      return false;
    }
    to->bytes.assign(text, static_cast<size_t>(size));
    return true;
  }
  Bytes bytes;
  if (!Read(from, name, &bytes)) return WrongType(from, name, "a str or bytes");
  to->bytes = std::string(bytes.view());
  return true;
}

bool Read(PyObject* from, const char* name, absl::Duration* to) {
  double seconds = 0;
  // A datetime.timedelta.
  Object number;
  if (!PyFloat_Check(from) && !PyLong_Check(from)) {
    number = Object(PyObject_CallMethod(from, "total_seconds", nullptr));
    if (number) from = number.get();
    PyErr_Clear();
  }
  if (!Read(from, name, &seconds)) return false;
  if (std::isnan(seconds) || seconds < 0) {
    PyErr_Format(PyExc_ValueError, "%s: expected seconds, 0 or more, got %S", name, from);
    return false;
  }
  *to = absl::Seconds(seconds);
  return true;
}

bool Read(PyObject* from, const char* name, CallTimeout* to) {
  if (from == Py_None) return true;
  if (!Read(from, name, &to->value)) return false;
  to->value = std::max(to->value, absl::Nanoseconds(1));
  return true;
}

bool Read(PyObject* from, const char* name, Bytes* to) {
  if (PyUnicode_Check(from) || !to->buffer.Get(from, 0)) {
    return WrongType(from, name, "a bytes-like object");
  }
  return true;
}

bool Read(PyObject* from, const char* name, RankRange* to) {
  if (!Read(from, name, &to->first)) return false;
  to->last = to->first;
  return true;
}

bool Read(PyObject* from, const char* name, std::vector<PyObject*>* to) {
  const bool is_tuple = PyTuple_Check(from) != 0;
  if (!is_tuple && !PyList_Check(from)) return WrongType(from, name, "a list or tuple");
  const Py_ssize_t size = is_tuple ? PyTuple_Size(from) : PyList_Size(from);
  for (Py_ssize_t i = 0; i < size; ++i) {
    to->push_back(is_tuple ? PyTuple_GetItem(from, i) : PyList_GetItem(from, i));
  }
  return true;
}

// A reduction by its name here, or in numpy, in torch.distributed or in MPI.
std::optional<ReduceOp> FindReduceOpByAnyName(absl::string_view name) {
  std::string text = absl::AsciiStrToLower(name);
  if (absl::StartsWith(text, "mpi_")) text.erase(0, 4);
  static constexpr std::pair<absl::string_view, ReduceOp> kOtherNames[] = {
      {"add", ReduceOp::kSum},           {"product", ReduceOp::kProd},
      {"multiply", ReduceOp::kProd},     {"minimum", ReduceOp::kMin},
      {"amin", ReduceOp::kMin},          {"maximum", ReduceOp::kMax},
      {"amax", ReduceOp::kMax},          {"average", ReduceOp::kAvg},
      {"mean", ReduceOp::kAvg},          {"band", ReduceOp::kBitAnd},
      {"bitwise_and", ReduceOp::kBitAnd}, {"bor", ReduceOp::kBitOr},
      {"bitwise_or", ReduceOp::kBitOr},  {"bxor", ReduceOp::kBitXor},
      {"bitwise_xor", ReduceOp::kBitXor}};
  for (const auto& [other, op] : kOtherNames) {
    if (text == other) return op;
  }
  return FindReduceOp(text);
}

std::optional<std::string> TextAttribute(PyObject* from, const char* attribute) {
  const Object value(PyObject_GetAttrString(from, attribute));
  std::string text;
  const bool has_text = value && PyUnicode_Check(value.get()) && Read(value.get(), "name", &text);
  PyErr_Clear();
  return has_text ? std::make_optional(std::move(text)) : std::nullopt;
}

// One of the operations of mpi4py, which have no name in all of its versions.
std::optional<ReduceOp> FindMpiOp(PyObject* from) {
  const Object module(PyImport_GetModule(Object(PyUnicode_FromString("mpi4py.MPI")).get()));
  PyErr_Clear();
  if (!module) return std::nullopt;
  for (const char* const name : {"SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR"}) {
    const Object op(PyObject_GetAttrString(module.get(), name));
    const bool is_same = op && PyObject_RichCompareBool(op.get(), from, Py_EQ) == 1;
    PyErr_Clear();
    if (is_same) return FindReduceOpByAnyName(name);
  }
  return std::nullopt;
}

// An operation of another library: an enumerator of torch.distributed.ReduceOp or an object with
// one, a function of numpy, or an operation of mpi4py. An enumerator of torch has a number as well,
// which means another operation there.
std::optional<ReduceOp> FindOtherReduceOp(PyObject* from) {
  Object enumerator(PyObject_GetAttrString(from, "op"));
  PyErr_Clear();
  if (!enumerator) enumerator = Object::Borrowed(from);
  std::optional<std::string> name = TextAttribute(enumerator.get(), "name");
  if (!name.has_value()) name = TextAttribute(from, "__name__");
  return name.has_value() ? FindReduceOpByAnyName(*name) : FindMpiOp(from);
}

bool Read(PyObject* from, const char* name, Reduction* to) {
  double scale = 1;
  if (PyTuple_Check(from)) {
    if (PyTuple_Size(from) != 2) return WrongType(from, name, "an operation and a scale");
    if (!Read(PyTuple_GetItem(from, 1), name, &scale)) return false;
    from = PyTuple_GetItem(from, 0);
  }
  std::optional<ReduceOp> op;
  if (PyUnicode_Check(from)) {
    std::string text;
    if (!Read(from, name, &text)) return false;
    op = FindReduceOp(text);
    if (!op.has_value()) op = FindReduceOpByAnyName(text);
  } else if (!PyLong_Check(from)) {
    op = FindOtherReduceOp(from);
  } else {
    int number = 0;
    if (!Read(from, name, &number)) return false;
    if (IsReduceOp(number)) op = static_cast<ReduceOp>(number);
  }
  if (!op.has_value()) {
    PyErr_Format(PyExc_ValueError, "%s: expected a reduction such as \"sum\" or \"max\", got %R",
                 name, from);
    return false;
  }
  *to = Reduction(*op, scale);
  return true;
}

PyObject* WriteText(absl::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

PyObject* WriteBytes(absl::string_view bytes) {
  return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}

PyObject* WriteRanks(const std::vector<RankRange>& ranges) {
  Py_ssize_t count = 0;
  for (const RankRange& range : ranges) count += range.last - range.first + 1;
  Object result(PyTuple_New(count));
  if (!result) return nullptr;
  Py_ssize_t i = 0;
  for (const RankRange& range : ranges) {
    for (int rank = range.first; rank <= range.last; ++rank) {
      PyObject* const number = Write(rank);
      if (number == nullptr || PyTuple_SetItem(result.get(), i++, number) != 0) return nullptr;
    }
  }
  return result.release();
}

}  // namespace cohort::python
