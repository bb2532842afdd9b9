#include "client/python/core/tensor_maps.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/tensor_map/broadcast.h"
#include "client/parallel/tensor_map/gather.h"
#include "client/parallel/tensor_map/send_receive.h"
#include "client/parallel/tensor_map/tensor_map.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/errors.h"
#include "client/python/core/map_values.h"
#include "client/python/core/method.h"

namespace cohort::python {
namespace {

using parallel::MapGatherOptions;
using parallel::Messages;
using parallel::TensorMap;

// The group to gather in, which stays open during the call.
struct Gather {
  Share<RunningGroup> running;
  MapGatherOptions options;
};

bool ReadGather(PyObject* from, Gather* to) {
  if (from == Py_None) return true;
  std::vector<PyObject*> parts, overrides;
  if (!Read(from, "gather", &parts)) return false;
  if (parts.size() != 2 || Py_TYPE(parts[0]) != TypeOf<GroupHandle>()) {
    PyErr_SetString(PyExc_TypeError, "all_gather_group: expected a Group");
    return false;
  }
  to->running = reinterpret_cast<Instance<GroupHandle>*>(parts[0])->value->Use();
  if (to->running == nullptr || !Read(parts[1], "all_gather_tensors", &overrides)) return false;
  for (PyObject* const entry : overrides) {
    std::vector<PyObject*> both;
    auto& [path, in_parts] = to->options.overrides.emplace_back();
    if (!Read(entry, "all_gather_tensors", &both)) return false;
    if (both.size() != 2 || !Read(both[0], "all_gather_tensors", &path) ||
        !Read(both[1], "all_gather_tensors", &in_parts)) {
      return false;
    }
  }
  to->options.group = to->running->group.get();
  to->options.all = true;
  return true;
}

bool ReadMakeArray(PyObject* make_array) {
  if (PyCallable_Check(make_array) != 0) return true;
  PyErr_Format(PyExc_ValueError, "tensors: expected \"numpy\" or \"torch\", got %R", make_array);
  return false;
}

// Runs `call(messages)`, which returns a Status, as RunOnAllRanks does.
template <typename Call>
PyObject* RunMessages(RunningGroup& running, const client::CallOptions& options,
                      const Gather& gather, const Call& call) {
  const MessagesUse use(running);
  if (!use.is_free()) return nullptr;
  return RunOnAllRanks(
      running, options, [&](client::Group&) { return call(*running.messages); },
      gather.running.get().get());
}

// Sends an error in place of the next map.
absl::Status SendError(Messages& messages, const absl::Status& why,
                       const parallel::SendMapOptions& options) {
  const client::Group& group = messages.group();
  if (group.size() == 1) return why;
  parallel::MessageSend send;
  send.peer = options.to.value_or((group.rank() + 1) % group.size());
  send.channel = options.channel;
  send.failure = why;
  return messages.Exchange({std::move(send)}, {}, options.call).status();
}

}  // namespace

PyObject* SendMap(GroupHandle& handle, PyObject* map, PyObject* peer, PyObject* gather,
                  PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  parallel::SendMapOptions options;
  if (!Read(peer, "destination", &options.to)) return nullptr;
  MapArgument argument;
  Gather gathers;
  absl::Status fit = ReadTimeout(timeout, &options.call);
  if (fit.ok() && !ReadGather(gather, &gathers)) fit = TakeException();
  if (fit.ok()) fit = argument.Read(map);
  options.gather = gathers.options;
  return RunMessages(*running, options.call, gathers, [&](Messages& messages) {
    if (fit.ok()) fit = running->form.AwaitStream(argument.stream(), options.call);
    return fit.ok() ? SendTensorMap(messages, argument.map(), options)
                    : SendError(messages, fit, options);
  });
}

PyObject* ReceiveMap(GroupHandle& handle, PyObject* peer, PyObject* gather, PyObject* make_array,
                     PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  parallel::ReceiveMapOptions options;
  Gather gathers;
  if (!Read(peer, "source", &options.from) || !ReadGather(gather, &gathers) ||
      !ReadMakeArray(make_array) || !Read(timeout, "timeout", &options.call.timeout)) {
    return nullptr;
  }
  options.gather = gathers.options;
  TensorMap map;
  const Object done(RunMessages(*running, options.call, gathers, [&](Messages& messages) {
    absl::StatusOr<TensorMap> came = ReceiveTensorMap(messages, options);
    if (came.ok()) map = *std::move(came);
    return came.status();
  }));
  return done ? WriteMap(map, make_array) : nullptr;
}

PyObject* BroadcastMap(GroupHandle& handle, PyObject* map, PyObject* root, PyObject* make_array,
                       PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  parallel::BroadcastMapOptions options;
  MapArgument argument;
  absl::Status fit = ReadTimeout(timeout, &options.call);
  if (fit.ok() && !Read(root, "root", &options.root)) fit = TakeException();
  if (fit.ok() && !ReadMakeArray(make_array)) fit = TakeException();
  const bool is_root = running->group->rank() == options.root;
  if (fit.ok() && is_root) fit = argument.Read(map);
  TensorMap result;
  const Object done(RunOnAllRanks(*running, options.call, [&](client::Group& group) {
    if (fit.ok()) fit = running->form.AwaitStream(argument.stream(), options.call);
    if (!fit.ok()) return group.FailCollectiveAs(fit, options.call);
    absl::StatusOr<TensorMap> came = BroadcastTensorMap(group, &argument.map(), options);
    if (came.ok()) result = *std::move(came);
    return came.status();
  }));
  if (!done) return nullptr;
  return is_root ? WriteNone() : WriteMap(result, make_array);
}

}  // namespace cohort::python
