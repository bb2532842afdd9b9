// The module's types for the control plane: ProcessGroup and Store, and their options.
#ifndef COHORT_CLIENT_PYTHON_CORE_RENDEZVOUS_H_
#define COHORT_CLIENT_PYTHON_CORE_RENDEZVOUS_H_

#include <vector>

#include "client/python/core/convert.h"
#include "client/python/core/python_api.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort::python {

// Reads the membership's part of a group's options. Returns false with an exception.
bool ReadMembership(Options& options, client::ProcessGroupOptions* to);

// Adds the types and functions to the module. Return false with an exception.
bool AddProcessGroup(PyObject* module);
bool AddStore(PyObject* module);

// The asynchronous methods of the types: each takes Completions first, and returns the number that
// its completion has.
const std::vector<PyMethodDef>& AsyncProcessGroupMethods();
const std::vector<PyMethodDef>& AsyncStoreMethods();
// Adds the function that joins a group without blocking.
bool AddAsyncProcessGroup(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_RENDEZVOUS_H_
