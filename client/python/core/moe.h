// The methods of the module's Group for mixtures of experts: tokens to ranks, and back.
#ifndef COHORT_CLIENT_PYTHON_CORE_MOE_H_
#define COHORT_CLIENT_PYTHON_CORE_MOE_H_

#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// Wrong arguments of all fail the call on all ranks. Results are memory of the group.

// Returns (hidden, companions, extras, sizes).
PyObject* Dispatch(GroupHandle& handle, PyObject* hidden, PyObject* companions, PyObject* extras,
                   PyObject* sizes, PyObject* sequence_parallel, PyObject* timeout);
// Returns the rows of this rank's tokens.
PyObject* Combine(GroupHandle& handle, PyObject* hidden, PyObject* sizes,
                  PyObject* sequence_parallel, PyObject* timeout);
// Returns (batch, hidden, ids, weights, extras, form, row counts, rows, slots).
PyObject* DispatchToExperts(GroupHandle& handle, PyObject* hidden, PyObject* ids, PyObject* weights,
                            PyObject* extras, PyObject* placement, PyObject* form,
                            PyObject* timeout);
// `batch` is the first result of DispatchToExperts. Returns the rows of this rank's tokens.
PyObject* CombineFromExperts(GroupHandle& handle, PyObject* batch, PyObject* outputs,
                             PyObject* weights_by, PyObject* timeout);

// Adds the types of placements and batches, and the function that makes placements. Returns false
// with an exception.
bool AddMoe(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_MOE_H_
