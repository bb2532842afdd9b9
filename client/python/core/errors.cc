#include "client/python/core/errors.h"

#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/python/core/convert.h"
#include "client/rendezvous/report/report.h"

namespace cohort::python {
namespace {

PyObject* factory = nullptr;  // owned until the process ends
std::thread::id exiting_thread;  // that of BeginExit; with the interpreter's lock

bool Set(PyObject* dict, const char* key, PyObject* owned) {
  const Object value(owned);
  return value && PyDict_SetItemString(dict, key, value.get()) == 0;
}

}  // namespace

void SetErrorFactory(Object made) {
  Py_XDECREF(factory);
  factory = made.release();
}

PyObject* MakeError(const absl::Status& status) {
  const client::ErrorInfo info = client::GetErrorInfo(status);
  const Object details(PyDict_New());
  if (!details) return nullptr;
  PyObject* const dict = details.get();
  bool set = true;
  if (!info.group.empty()) set = Set(dict, "group", WriteText(info.group));
  if (info.current_generation > 0)
    set = set && Set(dict, "generation", Write(info.current_generation));
  if (!info.operation.empty()) set = set && Set(dict, "operation", WriteText(info.operation));
  if (info.cause.kind != client::CauseKind::kNone) {
    set = set && Set(dict, "cause", WriteText(client::CauseKindName(info.cause.kind)));
  }
  if (info.cause.rank.has_value()) set = set && Set(dict, "culprit", Write(*info.cause.rank));
  if (!info.cause.member.empty()) {
    set = set && Set(dict, "culprit_member", WriteText(info.cause.member));
  }
  if (!info.missing.empty()) {
    set = set && Set(dict, "missing", WriteRanks(info.missing));
  }
  const Object code(Write(static_cast<int>(status.code())));
  const Object message(WriteText(status.message()));
  if (!set || !code || !message) return nullptr;
  return PyObject_CallFunctionObjArgs(factory, code.get(), message.get(), dict, nullptr);
}

PyObject* Raise(const absl::Status& status) {
  if (exiting_thread != std::thread::id() && exiting_thread != std::this_thread::get_id()) {
    PyErr_SetNone(PyExc_SystemExit);
    return nullptr;
  }
  const Object error(MakeError(status));
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return nullptr;
}

void BeginExit() { exiting_thread = std::this_thread::get_id(); }

Object TakeRaised() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return Object(value);
}

std::string DescribeException(PyObject* exception) {
  const Object name(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(exception)), "__name__"));
  const Object text(PyObject_Str(exception));
  std::string type = "an exception", message;
  if (name) Read(name.get(), "name", &type);
  if (text) Read(text.get(), "text", &message);
  PyErr_Clear();
  return message.empty() ? type : absl::StrCat(type, ": ", message.substr(0, 200));
}

void KeptInterrupt::Keep(Object exception) {
  if (Forked()) return;
  PyThreadState* const self = PyThreadState_Get();
  for (KeptInterrupt* method = newest_; method != nullptr; method = method->older_) {
    if (method->thread_ != self) continue;
    if (method->kept_ == nullptr) method->kept_ = exception.release();
    return;
  }
}

PyObject* KeptInterrupt::Replace(PyObject* result) {
  Py_XDECREF(result);
  const Object exception(std::exchange(kept_, nullptr));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return nullptr;
}

}  // namespace cohort::python
