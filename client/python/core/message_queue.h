// The module's types for message queues: MessageQueue, and the view of a value in place.
#ifndef COHORT_CLIENT_PYTHON_CORE_MESSAGE_QUEUE_H_
#define COHORT_CLIENT_PYTHON_CORE_MESSAGE_QUEUE_H_

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "client/parallel/queue/message_queue.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/handle.h"
#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

using QueueHandle = Handle<parallel::MessageQueue>;

// Reads all options. Returns false with an exception.
bool ReadQueueOptions(Options& options, parallel::QueueOptions* to);

// A method of the module's Group: makes a queue of its ranks. `options` is a dict.
PyObject* CreateQueue(GroupHandle& handle, PyObject* options);

// --- For an event loop: each runs the call of its name on a thread, and returns the call's number
// in `completions`, whose cancellation ends it. A value that came before the call was cancelled is
// in its result.

PyObject* StartCreateQueue(GroupHandle& handle, std::shared_ptr<Completions> completions,
                           PyObject* options);
PyObject* StartEnqueue(QueueHandle& handle, std::shared_ptr<Completions> completions, Bytes value,
                       std::optional<absl::Duration> timeout);
PyObject* StartDequeue(QueueHandle& handle, std::shared_ptr<Completions> completions,
                       std::optional<absl::Duration> timeout);
PyObject* StartAwaitReaders(QueueHandle& handle, std::shared_ptr<Completions> completions,
                            int count, std::optional<absl::Duration> timeout);
// A function of the module: (completions, options of open_queue).
PyObject* StartOpenQueue(PyObject* module, PyObject* arguments);

// Adds the types and functions to the module. Returns false with an exception.
bool AddMessageQueue(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_MESSAGE_QUEUE_H_
