// Converts between Python's objects and C++ values. All functions need the interpreter's lock.
// Those that fail leave a Python exception.
#ifndef COHORT_CLIENT_PYTHON_CORE_CONVERT_H_
#define COHORT_CLIENT_PYTHON_CORE_CONVERT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/collective/reduction.h"
#include "base/rank_set.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// A bytes-like object, readable while the argument lives.
struct Bytes {
  Buffer buffer;
  absl::string_view view() const { return buffer.bytes(); }
};

// Any bytes, or a str as UTF-8, copied.
struct Blob {
  std::string bytes;
};

// A timeout of a membership's call: None stands for the group's, which is zero in C++.
struct CallTimeout {
  absl::Duration value;
  operator absl::Duration() const { return value; }  // NOLINT: it is one
};

// `name` is the argument's name in errors.
bool Read(PyObject* from, const char* name, bool* to);
bool Read(PyObject* from, const char* name, int* to);
bool Read(PyObject* from, const char* name, int64_t* to);
bool Read(PyObject* from, const char* name, double* to);
bool Read(PyObject* from, const char* name, std::string* to);  // str, or bytes-like UTF-8
// Seconds, of which infinity is allowed, or a datetime.timedelta.
bool Read(PyObject* from, const char* name, absl::Duration* to);
bool Read(PyObject* from, const char* name, CallTimeout* to);
bool Read(PyObject* from, const char* name, Bytes* to);
bool Read(PyObject* from, const char* name, Blob* to);
bool Read(PyObject* from, const char* name, RankRange* to);  // a number
// The name or the number of an operation, or that of numpy, torch.distributed or mpi4py; or a tuple
// of it and a scale.
bool Read(PyObject* from, const char* name, Reduction* to);
inline bool Read(PyObject* from, const char* /*name*/, PyObject** to) {
  *to = from;
  return true;
}
template <typename T>
bool Read(PyObject* from, const char* name, std::vector<T>* to);
template <typename T>
bool Read(PyObject* from, const char* name, std::optional<T>* to) {
  if (from == Py_None) return true;
  return Read(from, name, &to->emplace());
}
// The items are the list's or the tuple's.
bool Read(PyObject* from, const char* name, std::vector<PyObject*>* to);
template <typename T>
bool Read(PyObject* from, const char* name, std::vector<T>* to) {
  // A str is a sequence of str.
  if (PyUnicode_Check(from) || !PySequence_Check(from)) {
    PyErr_Format(PyExc_TypeError, "%s: expected a sequence, got %S", name, Py_TYPE(from));
    return false;
  }
  const Py_ssize_t size = PySequence_Size(from);
  if (size < 0) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Object item(PySequence_GetItem(from, i));
    T value{};
    if (!item || !Read(item.get(), name, &value)) return false;
    to->push_back(std::move(value));
  }
  return true;
}

std::vector<std::string> BytesOf(std::vector<Blob> blobs);
inline std::optional<std::string> BytesOf(std::optional<Blob> blob) {
  if (!blob.has_value()) return std::nullopt;
  return std::move(blob->bytes);
}

inline PyObject* Write(bool value) { return PyBool_FromLong(value ? 1 : 0); }
inline PyObject* Write(int value) { return PyLong_FromLong(value); }
inline PyObject* Write(int64_t value) { return PyLong_FromLongLong(value); }
inline PyObject* Write(double value) { return PyFloat_FromDouble(value); }
inline PyObject* Write(absl::Duration value) {
  return PyFloat_FromDouble(absl::ToDoubleSeconds(value));
}
// A str; other bytes than UTF-8 become replacement characters.
PyObject* WriteText(absl::string_view text);
PyObject* WriteBytes(absl::string_view bytes);
// All ranks of the ranges, as a tuple of numbers.
PyObject* WriteRanks(const std::vector<RankRange>& ranges);
template <typename List, typename Function>
PyObject* WriteList(const List& list, Function write) {
  Object result(PyList_New(static_cast<Py_ssize_t>(list.size())));
  if (!result) return nullptr;
  Py_ssize_t i = 0;
  for (const auto& value : list) {
    PyObject* const item = write(value);
    if (item == nullptr || PyList_SetItem(result.get(), i++, item) != 0) return nullptr;
  }
  return result.release();
}
inline PyObject* WriteNone() {
  Py_INCREF(Py_None);
  return Py_None;
}

// Reads keyword options, each once. Finish fails if the dict has a key that was not read.
class Options {
 public:
  // `dict` is a dict of str, which outlives this.
  explicit Options(PyObject* dict) : dict_(dict) {}
  // Returns false if the value is of a wrong type. An absent key, or None, leaves `to` as it is.
  template <typename T>
  bool Get(const char* name, T* to) {
    PyObject* const value = PyDict_GetItemString(dict_, name);  // borrowed
    if (value == nullptr) return true;
    ++known_;
    return value == Py_None || Read(value, name, to);
  }
  bool Finish() const {
    if (PyDict_Size(dict_) == known_) return true;
    PyErr_Format(PyExc_TypeError, "unknown option among %S", dict_);
    return false;
  }

 private:
  PyObject* const dict_;
  Py_ssize_t known_ = 0;
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_CONVERT_H_
