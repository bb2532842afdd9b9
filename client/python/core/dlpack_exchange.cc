#include "client/python/core/dlpack_exchange.h"

namespace cohort::python {
namespace {

// The functions of the type that was seen last: there is rarely more than one.
struct {
  PyTypeObject* type = nullptr;
  const ExchangeApi* api = nullptr;
} last_type;

}  // namespace

const ExchangeApi* ExchangeApiOf(PyTypeObject* type) {
  if (type == last_type.type) return last_type.api;
  const Object capsule(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  const ExchangeApi* api = nullptr;
  if (capsule && PyCapsule_CheckExact(capsule.get())) {
    api =
        static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
  }
  PyErr_Clear();
  if (api != nullptr && (api->version.major != 1 || api->view == nullptr)) api = nullptr;
  Py_INCREF(type);
  Py_XDECREF(last_type.type);
  last_type = {type, api};
  return api;
}

}  // namespace cohort::python
