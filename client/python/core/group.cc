#include "client/python/core/group.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/collective/message_info.h"
#include "base/tensor/data_type.h"
#include "base/tensor/device.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/python/core/array.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collectives.h"
#include "client/python/core/convert.h"
#include "client/python/core/coordinator_call.h"
#include "client/python/core/errors.h"
#include "client/python/core/group_form.h"
#include "client/python/core/message_queue.h"
#include "client/python/core/layout_groups.h"
#include "client/python/core/method.h"
#include "client/python/core/moe.h"
#include "client/python/core/pipeline.h"
#include "client/python/core/rendezvous.h"
#include "client/python/core/running_group.h"
#include "client/python/core/tensor_maps.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {
namespace {

using client::CallOptions;
using Timeout = std::optional<absl::Duration>;

CallOptions WithTimeout(Timeout timeout) {
  CallOptions options;
  options.timeout = timeout;
  return options;
}

// One message: to `peer` if `sends`, or else from it.
PyObject* Exchange(GroupHandle& handle, std::vector<PyObject*> transfers, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<client::TensorTransfer> plan;
  CallOptions options = WithTimeout(timeout);
  for (PyObject* const transfer : transfers) {
    client::TensorTransfer next;
    std::vector<PyObject*> parts;
    if (!Read(transfer, "transfer", &parts)) return nullptr;
    arrays.push_back(std::make_unique<Array>());
    if (parts.size() != 3 || !Read(parts[0], "sends", &next.sends) ||
        !Read(parts[1], "peer", &next.peer) ||
        !arrays.back()->Read(parts[2], "tensor", next.sends ? Access::kRead : Access::kWrite)) {
      return nullptr;
    }
    if (arrays.back()->stream().has_value()) options.stream = arrays.back()->stream();
    next.tensor = arrays.back()->tensor();
    plan.push_back(std::move(next));
  }
  return RunOnAllRanks(
      *running, [&](client::Group& group) { return group.Exchange(plan, options); });
}

PyObject* AwaitMessage(GroupHandle& handle, std::vector<int> peers, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  MessageInfo info;
  const Object done(RunOnAllRanks(*running, [&](client::Group& group) {
    const absl::StatusOr<MessageInfo> message = group.AwaitMessage(peers, WithTimeout(timeout));
    if (message.ok()) info = *message;
    return message.status();
  }));
  if (!done) return nullptr;
  return Py_BuildValue("(iNL)", info.peer, WriteText(NameOf(info.type)),
                       static_cast<long long>(info.count));  // NOLINT: Python's type
}

// `device`: the number of a GPU; None: the host.
PyObject* Allocate(GroupHandle& handle, int type, std::vector<int64_t> shape,
                   std::optional<int> device) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr || RaiseIfForked()) return nullptr;
  absl::StatusOr<Tensor> tensor =
      running->group->Allocate(static_cast<DataType>(type), Shape(shape.begin(), shape.end()),
                               device.has_value() ? Device::Cuda(*device) : Device::Host());
  if (!tensor.ok()) return Raise(tensor.status());
  return WriteMemory(*std::move(tensor));
}

PyObject* AwaitStreams(GroupHandle& handle, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  return RunOnAllRanks(*running, [&](client::Group& group) {
    return group.AwaitStreams(WithTimeout(timeout));
  });
}

PyObject* SendObject(GroupHandle& handle, Bytes object, int destination, Timeout timeout) {
  return CallForStatus(handle, [&](RunningGroup& running) {
    return running.group->SendObject(object.view(), destination, WithTimeout(timeout));
  });
}

PyObject* ReceiveObject(GroupHandle& handle, int source, Timeout timeout) {
  return CallForResult(
      handle,
      [&](RunningGroup& running) {
        return running.group->ReceiveObject(source, WithTimeout(timeout));
      },
      WriteBytes);
}

PyObject* BroadcastObject(GroupHandle& handle, Bytes object, int root, Timeout timeout) {
  return CallForResult(
      handle,
      [&](RunningGroup& running) {
        return running.group->BroadcastObject(object.view(), root, WithTimeout(timeout));
      },
      WriteBytes);
}

PyObject* AllGatherObjects(GroupHandle& handle, Bytes object, Timeout timeout) {
  return CallForResult(
      handle,
      [&](RunningGroup& running) {
        return running.group->AllGatherObjects(object.view(), WithTimeout(timeout));
      },
      [](const std::vector<std::string>& objects) { return WriteList(objects, WriteBytes); });
}

PyObject* Rejoin(GroupHandle& handle, absl::Duration timeout) {
  return CallForStatus(handle,
                       [&](RunningGroup& running) { return running.group->Rejoin(timeout); });
}

PyObject* Abort(GroupHandle& handle, std::string reason) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr || RaiseIfForked()) return nullptr;
  running->group->Abort(absl::AbortedError(reason));
  return WriteNone();
}

PyObject* Release(GroupHandle& handle) {
  std::shared_ptr<RunningGroup> running = handle.Take();
  if (running == nullptr) return WriteNone();
  // Ends the asynchronous calls now, although other threads may still use the group. It waits for
  // the one that runs, as that call waits for other ranks; a signal ends both.
  std::unique_ptr<client::AsyncCalls> calls = std::move(running->async_calls);
  client::Group* const group = running->group.get();
  const auto end = [&](const absl::Status& reason) { group->Abort(reason); };
  {
    const Blocking blocking(end);
    blocking.Run([&] { calls.reset(); });
  }
  {
    const GilRelease release;
    running.reset();
  }
  return PyErr_Occurred() == nullptr ? WriteNone() : nullptr;
}

// The facts that may change with the generation: name, rank, size, number of the generation.
PyObject* Facts(GroupHandle& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const client::Group& group = *running->group;
  return Py_BuildValue("(NiiL)", WriteText(group.name()), group.rank(), group.size(),
                       static_cast<long long>(group.generation()));  // NOLINT: Python's type
}

// The placement, and the device.
PyObject* Place(GroupHandle& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const Device device = running->group->device();
  return Py_BuildValue("(NN)", WriteText(NameOf(running->group->placement())),
                       WriteText(device.is_host() ? "cpu" : device.ToString()));
}

PyObject* Paths(GroupHandle& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  return running == nullptr ? nullptr : WriteList(running->group->paths(), WriteText);
}

PyObject* Hosts(GroupHandle& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  return running == nullptr ? nullptr : WriteList(running->group->hosts(), WriteText);
}

PyObject* Stats(GroupHandle& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  return WriteList(running->group->Stats(), [](const client::PeerStats& peer) {
    const Object parts[] = {Object(Write(peer.bytes_sent)), Object(Write(peer.messages_sent)),
                            Object(Write(peer.bytes_received)),
                            Object(Write(peer.messages_received))};
    return Py_BuildValue("(OOOO)", parts[0].get(), parts[1].get(), parts[2].get(), parts[3].get());
  });
}

PyObject* Join(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  GroupForm form;
  if (!form.Read(options) || !options.Finish()) return nullptr;
  const auto cancellation = std::make_shared<client::Cancellation>();
  const auto end = [&](const absl::Status& reason) { cancellation->Cancel(reason); };
  const Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<std::unique_ptr<client::Group>> group =
      blocking.Run([&] { return form.Join(cancellation); });
  if (!group.ok()) return blocking.Raise(group.status());
  return WriteInstance(std::make_unique<GroupHandle>(
      std::make_shared<RunningGroup>(*std::move(group), std::move(form))));
}

PyMethodDef methods[] = {Method<&RunCollective>("run"),
                         Method<&RunRaggedCollective>("run_ragged"),
                         Method<&StartCollective>("start"),
                         Method<&AllReduceCoalesced>("all_reduce_coalesced"),
                         Method<&Barrier>("barrier"),
                         Method<&FailCollective>("fail", {"reason", "timeout"}),
                         Method<&ExchangeSizes>("exchange_sizes"),
                         Method<&Exchange>("exchange", {"transfers", "timeout"}),
                         Method<&AwaitMessage>("await_message", {"peers", "timeout"}),
                         Method<&Allocate>("allocate", {"dtype", "shape", "device"}),
                         Method<&AwaitStreams>("await_streams", {"timeout"}),
                         Method<&SendObject>("send_object", {"obj", "destination", "timeout"}),
                         Method<&ReceiveObject>("receive_object", {"source", "timeout"}),
                         Method<&BroadcastObject>("broadcast_object", {"obj", "root", "timeout"}),
                         Method<&AllGatherObjects>("all_gather_objects", {"obj", "timeout"}),
                         Method<&SendMap>("send_map"),
                         Method<&ReceiveMap>("receive_map"),
                         Method<&BroadcastMap>("broadcast_map"),
                         Method<&CreateQueue>("create_queue"),
                         Method<&CreateLayout>("create_layout"),
                         Method<&CreateGroups>("create_groups"),
                         Method<&Dispatch>("dispatch"),
                         Method<&Combine>("combine"),
                         Method<&DispatchToExperts>("dispatch_to_experts"),
                         Method<&CombineFromExperts>("combine_from_experts"),
                         Method<&MakePipeline>("pipeline"),
                         Method<&RingShift>("ring_shift"),
                         Method<&Rejoin>("rejoin", {"timeout"}),
                         Method<&Abort>("abort", {"reason"}),
                         Method<&Release>("release"),
                         Method<&Facts>("facts"),
                         Method<&Place>("place"),
                         Method<&Paths>("paths"),
                         Method<&Hosts>("hosts"),
                         Method<&Stats>("stats"),
                         {}};
PyMethodDef functions[] = {{"join_group", Join, METH_O, nullptr}, {}};

}  // namespace

bool AddGroup(PyObject* module) {
  const Object type(MakeType<GroupHandle>("cohort._core.Group", methods));
  return type && PyModule_AddObjectRef(module, "Group", type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0 && AddPendingCall(module);
}

}  // namespace cohort::python
