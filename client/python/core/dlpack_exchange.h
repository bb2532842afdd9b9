// DLPack's functions of C, by which a library shows its tensors without an object of Python.
#ifndef COHORT_CLIENT_PYTHON_CORE_DLPACK_EXCHANGE_H_
#define COHORT_CLIENT_PYTHON_CORE_DLPACK_EXCHANGE_H_

#include <dlpack/dlpack.h>

#include <cstdint>

#include "client/python/core/python_api.h"

namespace cohort::python {

// Functions of a library for its tensors, from version 1.3 of DLPack on.
struct ExchangeApi {
  struct {
    uint32_t major;
    uint32_t minor;
  } version;
  ExchangeApi* older;
  void* allocate;
  void* managed_from_python;
  void* python_from_managed;
  int (*view)(void* object, DLTensor* to);  // may be null
  int (*current_stream)(DLDeviceType device, int32_t index, void** to);
};

// Null: the type has none. No exception is left. The caller holds the interpreter's lock.
const ExchangeApi* ExchangeApiOf(PyTypeObject* type);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_DLPACK_EXCHANGE_H_
