// The methods of the module's Group that all ranks call, and the asynchronous calls.
#ifndef COHORT_CLIENT_PYTHON_CORE_COLLECTIVES_H_
#define COHORT_CLIENT_PYTHON_CORE_COLLECTIVES_H_

#include <string>

#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// `collective` is the number of one with an input, an output, or both. Wrong arguments fail the
// collective on all ranks.
PyObject* RunCollective(GroupHandle& handle, int collective, PyObject* input, PyObject* output,
                        PyObject* op, PyObject* dim, PyObject* root, PyObject* timeout);
PyObject* RunRaggedCollective(GroupHandle& handle, int collective, PyObject* input,
                              PyObject* output, PyObject* op, PyObject* dim, PyObject* root,
                              PyObject* sizes, PyObject* timeout);
PyObject* AllReduceCoalesced(GroupHandle& handle, PyObject* inputs, PyObject* outputs, PyObject* op,
                             PyObject* timeout);
PyObject* Barrier(GroupHandle& handle, PyObject* timeout);
// Takes the turn of a collective that this rank cannot call: all ranks get `reason` and this rank.
PyObject* FailCollective(GroupHandle& handle, std::string reason, PyObject* timeout,
                         bool on_stream);
PyObject* ExchangeSizes(GroupHandle& handle, PyObject* own, PyObject* timeout);

// Starts RunCollective, and returns a PendingCall.
PyObject* StartCollective(GroupHandle& handle, int collective, PyObject* input, PyObject* output,
                          PyObject* op, PyObject* dim, PyObject* root, PyObject* timeout);
// Adds the type of pending calls to the module. Returns false with an exception.
bool AddPendingCall(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_COLLECTIVES_H_
