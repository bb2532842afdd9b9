// Calls of a group that return at once. Pending calls run in the order in which they were started,
// after those of StartCollective; the calls for an event loop have a thread each.
#ifndef COHORT_CLIENT_PYTHON_CORE_STARTED_CALLS_H_
#define COHORT_CLIENT_PYTHON_CORE_STARTED_CALLS_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/python_api.h"
#include "client/python/core/running_group.h"

namespace cohort::python {

// --- Each starts the method of its name, and returns a PendingCall. Wrong arguments fail the
// collective on all ranks, in its turn.

PyObject* StartRaggedCollective(GroupHandle& handle, int collective, PyObject* input,
                                PyObject* output, PyObject* op, PyObject* dim, PyObject* root,
                                PyObject* sizes, PyObject* timeout);
PyObject* StartAllReduceCoalesced(GroupHandle& handle, PyObject* inputs, PyObject* outputs,
                                  PyObject* op, PyObject* timeout);
PyObject* StartBarrier(GroupHandle& handle, PyObject* timeout);
// Wrong arguments of a message raise an exception on this rank alone.
PyObject* StartExchange(GroupHandle& handle, std::vector<PyObject*> transfers,
                        std::optional<absl::Duration> timeout);
// `sizes`, an array of i64, gets the number of each rank.
PyObject* StartExchangeSizes(GroupHandle& handle, PyObject* own, PyObject* sizes,
                             PyObject* timeout);

// --- For an event loop: each runs on a thread, and returns the number of the call in
// `completions`, whose cancellation ends it for this rank alone. The thread keeps the group open until the call ends.

PyObject* StartSendObject(GroupHandle& handle, std::shared_ptr<Completions> completions,
                          Bytes object, int destination, std::optional<absl::Duration> timeout);
PyObject* StartReceiveObject(GroupHandle& handle, std::shared_ptr<Completions> completions,
                             int source, std::optional<absl::Duration> timeout);
PyObject* StartBroadcastObject(GroupHandle& handle, std::shared_ptr<Completions> completions,
                               Bytes object, int root, std::optional<absl::Duration> timeout);
PyObject* StartAllGatherObjects(GroupHandle& handle, std::shared_ptr<Completions> completions,
                                Bytes object, std::optional<absl::Duration> timeout);
PyObject* StartRejoin(GroupHandle& handle, std::shared_ptr<Completions> completions,
                      absl::Duration timeout);
// A function of the module: (completions, options of join_group). The result is a group.
PyObject* StartJoinGroup(PyObject* module, PyObject* arguments);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_STARTED_CALLS_H_
