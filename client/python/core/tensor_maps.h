// The methods of the module's Group that move tensor maps.
#ifndef COHORT_CLIENT_PYTHON_CORE_TENSOR_MAPS_H_
#define COHORT_CLIENT_PYTHON_CORE_TENSOR_MAPS_H_

#include "client/python/core/convert.h"
#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// `peer`: None for the next or the previous rank. `gather`: None, or the module's Group to gather
// in and a list of (path, whether in parts). `make_array`: see WriteMap; anything else than a
// callable is the wrong value that the caller gave.

// A map that cannot be sent is an error on both ranks.
PyObject* SendMap(GroupHandle& handle, PyObject* map, PyObject* peer, PyObject* gather,
                  PyObject* timeout);
PyObject* ReceiveMap(GroupHandle& handle, PyObject* peer, PyObject* gather, PyObject* make_array,
                     PyObject* timeout);
// Returns None on the root. Wrong arguments are an error on all ranks.
PyObject* BroadcastMap(GroupHandle& handle, PyObject* map, PyObject* root, PyObject* make_array,
                       PyObject* timeout);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_TENSOR_MAPS_H_
