// Python's stable ABI of version 3.10, and the few owners and locks that the module needs.
#ifndef COHORT_CLIENT_PYTHON_CORE_PYTHON_API_H_
#define COHORT_CLIENT_PYTHON_CORE_PYTHON_API_H_

#define PY_SSIZE_T_CLEAN
// One binary for all versions from 3.10 on.
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/string_view.h"

extern "C" {
// The stable ABI has buffers from 3.11 on. Version 3.10 exports the same functions and struct.
struct PyBufferView {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};
#if Py_LIMITED_API < 0x030B0000
int PyObject_GetBuffer(PyObject* object, PyBufferView* view, int flags);
void PyBuffer_Release(PyBufferView* view);
int PyBuffer_FillInfo(PyBufferView* view, PyObject* object, void* buf, Py_ssize_t bytes,
                      int readonly, int flags);
#endif
}

namespace cohort::python {

inline constexpr int kBufferFormat = 0x0004;
inline constexpr int kBufferNd = 0x0008;
inline constexpr int kBufferStrides = 0x0010 | kBufferNd;
inline constexpr int kBufferWritable = 0x0001;
// The numbers of the slots of a type, which the stable ABI names from 3.11 on.
inline constexpr int kGetBufferSlot = 1;
inline constexpr int kReleaseBufferSlot = 2;

// A reference that this object owns. Null is allowed. Used with the interpreter's lock held.
class Object {
 public:
  Object() = default;
  explicit Object(PyObject* owned) : object_(owned) {}
  static Object Borrowed(PyObject* object) {
    Py_XINCREF(object);
    return Object(object);
  }
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Takes the interpreter's lock. Until version 3.13, the interpreter ends a thread by pthread_exit if it
// takes the lock while the process exits. That would end the process at the first destructor on the
// way. So the thread sleeps until the process has exited, as from version 3.14 on.
template <typename Take>
auto TakeGil(const Take& take) {
  try {
    return take();
  } catch (...) {
    while (true) pause();
  }
}

// Releases the interpreter's lock while it lives.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { Restore(); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

  // Runs `function` with the lock.
  template <typename Function>
  void Interrupt(const Function& function) {
    Restore();
    function();
    state_ = PyEval_SaveThread();
  }

 private:
  void Restore() {
    TakeGil([this] { PyEval_RestoreThread(state_); });
  }

  PyThreadState* state_;
};

// Holds the interpreter's lock while it lives, on any thread.
class GilAcquire {
 public:
  GilAcquire() : state_(TakeGil(Ensure)) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  static PyGILState_STATE Ensure() {
    // A thread that Python does not know gets no state any more. The thread that ends the interpreter
    // is known.
    while (Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr) pause();
    return PyGILState_Ensure();
  }

  const PyGILState_STATE state_;
};

// A buffer of a Python object, released with this.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, PyBufferView())) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  // Returns false with a Python exception if the object has no such buffer.
  bool Get(PyObject* object, int flags) { return PyObject_GetBuffer(object, &view_, flags) == 0; }
  const PyBufferView& view() const { return view_; }
  absl::string_view bytes() const {
    return {static_cast<const char*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  PyBufferView view_ = {};
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_PYTHON_API_H_
