// The extension module cohort._core: the C++ library for the Python classes above it.
#include "base/version.h"
#include "client/python/core/array.h"
#include "client/python/core/blocking.h"
#include "client/python/core/completions.h"
#include "client/python/core/departures.h"
#include "client/python/core/errors.h"
#include "client/python/core/group.h"
#include "client/python/core/layout.h"
#include "client/python/core/message_queue.h"
#include "client/python/core/method.h"
#include "client/python/core/moe.h"
#include "client/python/core/pipeline.h"
#include "client/python/core/python_api.h"
#include "client/python/core/rendezvous.h"
#include "client/python/core/watch.h"

namespace cohort::python {
namespace {

PyObject* SetErrors(PyObject* /*module*/, PyObject* factory) {
  SetErrorFactory(Object::Borrowed(factory));
  Py_INCREF(Py_None);
  return Py_None;
}

PyMethodDef functions[] = {Function<&SetErrors>("set_error_factory"), {}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "cohort._core", nullptr, -1, functions};

}  // namespace
}  // namespace cohort::python

PyMODINIT_FUNC PyInit__core() {
  cohort::python::NoteImport();
  using namespace cohort::python;  // NOLINT: the function is in no namespace
  Object module(PyModule_Create(&definition));
  if (!module || PyModule_AddStringConstant(module.get(), "version", cohort::kVersion) != 0) {
    return nullptr;
  }
  for (const auto add : {AddMemory, AddCompletions, AddProcessGroup, AddStore, AddGroup,
                         AddMessageQueue, AddLayout, AddMoe, AddPipeline, AddWatch, AddDepartures}) {
    if (!add(module.get())) return nullptr;
  }
  return module.release();
}
