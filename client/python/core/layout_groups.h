// The methods of the module's Group that create groups of some of its ranks. Wrong arguments of one
// rank fail the creation on all ranks. A signal aborts `handle`'s group on all ranks, because the
// other ranks wait for this one.
#ifndef COHORT_CLIENT_PYTHON_CORE_LAYOUT_GROUPS_H_
#define COHORT_CLIENT_PYTHON_CORE_LAYOUT_GROUPS_H_

#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// Returns, for each group of a layout that this rank is in, the group and the kinds that it serves;
// None stands for `handle`'s own group.
PyObject* CreateLayout(GroupHandle& handle, PyObject* layout, PyObject* kinds, PyObject* separate,
                       PyObject* name, PyObject* timeout);
// Returns the groups of `lists` that this rank is in.
PyObject* CreateGroups(GroupHandle& handle, PyObject* lists, PyObject* overlap, PyObject* name,
                       PyObject* timeout);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_LAYOUT_GROUPS_H_
