// Layouts: a tuple of plain values in Python, parallel::Layout in C++.
//
//   (world_size, {axis: size}, {kind: lists of ranks}, first_rank, separate kinds)
#ifndef COHORT_CLIENT_PYTHON_CORE_LAYOUT_H_
#define COHORT_CLIENT_PYTHON_CORE_LAYOUT_H_

#include <optional>
#include <vector>

#include "client/parallel/layout/layout.h"
#include "client/parallel/layout/role.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// Return false with an exception: other types, unknown names, or a layout that breaks a rule.
bool ReadLayout(PyObject* from, std::optional<parallel::Layout>* to);
bool ReadKinds(PyObject* from, const char* name, std::vector<parallel::GroupKind>* to);

// Adds the functions that make layouts. Returns false with an exception.
bool AddLayout(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_LAYOUT_H_
