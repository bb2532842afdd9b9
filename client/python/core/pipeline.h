// Transfers between the stages of a pipeline, and around a ring of ranks.
#ifndef COHORT_CLIENT_PYTHON_CORE_PIPELINE_H_
#define COHORT_CLIENT_PYTHON_CORE_PIPELINE_H_

#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// Returns a pipeline of the group, which does not keep the group open. `dict` has its options.
PyObject* MakePipeline(GroupHandle& handle, PyObject* dict);
// A wrong argument fails the call on this rank and on the receiver of its array.
PyObject* RingShift(GroupHandle& handle, PyObject* array, PyObject* distance, PyObject* timeout);

// Adds the type of pipelines to the module. Returns false with an exception.
bool AddPipeline(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_PIPELINE_H_
