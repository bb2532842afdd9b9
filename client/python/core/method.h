// Makes Python methods and types of C++ functions and classes.
//
//   PyObject* Send(ProcessGroup& group, Bytes object, int destination);
//
//   PyMethodDef kMethods[] = {Method<&Send>("send", {"obj", "dst"}), {}};
//   PyObject* type = MakeType<ProcessGroup>("cohort._core.ProcessGroup", kMethods);
//
// Arguments are positional: the Python classes above the module have the keywords and the defaults.
#ifndef COHORT_CLIENT_PYTHON_CORE_METHOD_H_
#define COHORT_CLIENT_PYTHON_CORE_METHOD_H_

#include <algorithm>
#include <array>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// A Python object of the class T.
template <typename T>
struct Instance {
  PyObject_HEAD;
  T* value;
};

// The Python type of T; MakeType sets it.
template <typename T>
PyTypeObject*& TypeOf() {
  static PyTypeObject* type = nullptr;
  return type;
}

// Returns a new instance, or null with a Python exception.
template <typename T>
PyObject* WriteInstance(std::unique_ptr<T> value) {
  NoteUse();
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(TypeOf<T>(), Py_tp_alloc));
  PyObject* const object = allocate(TypeOf<T>(), 0);
  if (object != nullptr) reinterpret_cast<Instance<T>*>(object)->value = value.release();
  return object;
}

// Returns the T of an instance, or null with a TypeError. `name` is the argument's name.
template <typename T>
T* ReadInstance(PyObject* from, const char* name) {
  if (Py_TYPE(from) == TypeOf<T>()) return reinterpret_cast<Instance<T>*>(from)->value;
  PyErr_Format(PyExc_TypeError, "%s: expected %R, got %S", name,
               reinterpret_cast<PyObject*>(TypeOf<T>()), Py_TYPE(from));
  return nullptr;
}

namespace internal {

template <typename Function>
struct Signature;
template <typename Self, typename... Args>
struct Signature<PyObject* (*)(Self&, Args...)> {
  using Class = Self;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};

// The names of a function's arguments, in errors. Objects that are not read need none.
using Names = std::array<const char*, 8>;
template <auto kFunction>
Names& NamesOf() {
  static Names names = {};
  return names;
}

template <auto kFunction, size_t... kIndex>
PyObject* CallWith(PyObject* self, PyObject* const* args, std::index_sequence<kIndex...>) {
  using Of = Signature<decltype(kFunction)>;
  using Class = typename Of::Class;
  typename Of::Arguments arguments;
  const Names& names = NamesOf<kFunction>();
  if (!(Read(args[kIndex], names[kIndex], &std::get<kIndex>(arguments)) && ...)) return nullptr;
  return kFunction(*reinterpret_cast<Instance<Class>*>(self)->value,
                   std::move(std::get<kIndex>(arguments))...);
}

// Returns `call()`. No C++ exception may reach the interpreter.
template <typename Callable>
PyObject* Guarded(const Callable& call) {
  KeptInterrupt kept;
  try {
    return kept.Return(call());
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

template <auto kFunction, bool kAlsoInChild>
PyObject* Call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  constexpr size_t kCount = std::tuple_size_v<typename Signature<decltype(kFunction)>::Arguments>;
  if (count != static_cast<Py_ssize_t>(kCount)) {
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd",
                 static_cast<Py_ssize_t>(kCount), count);
    return nullptr;
  }
  if (!kAlsoInChild && RaiseIfForked()) return nullptr;
  return Guarded(
      [&] { return CallWith<kFunction>(self, args, std::make_index_sequence<kCount>()); });
}

template <PyObject* (*kFunction)(PyObject*, PyObject*)>
PyObject* CallOfModule(PyObject* module, PyObject* argument) {
  return Guarded([&] { return kFunction(module, argument); });
}

template <typename T>
void Deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  std::unique_ptr<T> value(reinterpret_cast<Instance<T>*>(self)->value);
  if (Forked()) value.release();  // NOLINT: see Forked
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
  // Destructors may wait: a group leaves.
  const GilRelease release;
  value.reset();
}

}  // namespace internal

// `names`: the names that the arguments have in Python. In a forked child, it raises
// FailedPrecondition; see Forked.
template <auto kFunction, bool kAlsoInChild = false>
PyMethodDef Method(const char* name, std::initializer_list<const char*> names = {}) {
  std::copy(names.begin(), names.end(), internal::NamesOf<kFunction>().begin());
  return {name,
          reinterpret_cast<PyCFunction>(
              reinterpret_cast<void*>(&internal::Call<kFunction, kAlsoInChild>)),
          METH_FASTCALL, nullptr};
}
// For methods that leave the object of the parent as it is, such as those that close it.
template <auto kFunction>
PyMethodDef MethodAlsoInChild(const char* name, std::initializer_list<const char*> names = {}) {
  return Method<kFunction, true>(name, names);
}

// A function of the module with one argument.
template <PyObject* (*kFunction)(PyObject*, PyObject*)>
PyMethodDef Function(const char* name, int flags = METH_O) {
  return {name, &internal::CallOfModule<kFunction>, flags, nullptr};
}

// Creates the type of T, whose instances C++ alone makes. `name` and `methods` outlive the program;
// `more`: further slots of the type. Returns null with a Python exception.
template <typename T>
PyObject* MakeType(const char* name, PyMethodDef* methods,
                   std::initializer_list<PyType_Slot> more = {}) {
  std::vector<PyType_Slot> slots = {
      {Py_tp_dealloc, reinterpret_cast<void*>(&internal::Deallocate<T>)},
      {Py_tp_methods, methods}};
  slots.insert(slots.end(), more.begin(), more.end());
  slots.push_back({});
  PyType_Spec spec = {name, sizeof(Instance<T>), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots.data()};
  PyObject* const type = PyType_FromSpec(&spec);
  TypeOf<T>() = reinterpret_cast<PyTypeObject*>(type);
  return type;
}

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_METHOD_H_
