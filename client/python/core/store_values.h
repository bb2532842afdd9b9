// Results of a StoreClient as Python's objects. All functions that return one need the interpreter's
// lock, and return null with an exception if there is no memory.
#ifndef COHORT_CLIENT_PYTHON_CORE_STORE_VALUES_H_
#define COHORT_CLIENT_PYTHON_CORE_STORE_VALUES_H_

#include <optional>
#include <string>
#include <vector>

#include "client/python/core/python_api.h"
#include "client/rendezvous/store_client.h"

namespace cohort::python {

PyObject* WritePut(const client::PutResult& result);
PyObject* WriteGet(const client::GetResult& result);
PyObject* WriteRange(const client::RangeResult& result);
PyObject* WriteItem(const std::optional<client::QueueItem>& item);

// The entries of a write of several keys.
std::vector<client::PutEntry> PutEntries(const std::vector<std::string>& keys,
                                         const std::vector<std::string>& values);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_STORE_VALUES_H_
