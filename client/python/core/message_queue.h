// The module's types for message queues: MessageQueue, and the view of a value in place.
#ifndef COHORT_CLIENT_PYTHON_CORE_MESSAGE_QUEUE_H_
#define COHORT_CLIENT_PYTHON_CORE_MESSAGE_QUEUE_H_

#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// A method of the module's Group: makes a queue of its ranks. `options` is a dict.
PyObject* CreateQueue(GroupHandle& handle, PyObject* options);

// Adds the types and functions to the module. Returns false with an exception.
bool AddMessageQueue(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_MESSAGE_QUEUE_H_
