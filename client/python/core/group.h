// The module's type for groups that move tensors.
#ifndef COHORT_CLIENT_PYTHON_CORE_GROUP_H_
#define COHORT_CLIENT_PYTHON_CORE_GROUP_H_

#include "client/python/core/python_api.h"

namespace cohort::python {

// Adds the types and functions to the module. Returns false with an exception.
bool AddGroup(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_GROUP_H_
