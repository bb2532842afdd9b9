#include "client/python/core/group.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/collective/message_info.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "base/tensor/device.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/python/core/array.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collectives.h"
#include "client/python/core/convert.h"
#include "client/python/core/coordinator_call.h"
#include "client/python/core/departures.h"
#include "client/python/core/errors.h"
#include "client/python/core/group_form.h"
#include "client/python/core/message_queue.h"
#include "client/python/core/layout_groups.h"
#include "client/python/core/method.h"
#include "client/python/core/moe.h"
#include "client/python/core/pipeline.h"
#include "client/python/core/rendezvous.h"
#include "client/python/core/running_group.h"
#include "client/python/core/started_calls.h"
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
  const Share<RunningGroup> running = handle.Use();
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
      *running, options, [&](client::Group& group) { return group.Exchange(plan, options); });
}

PyObject* AwaitMessage(GroupHandle& handle, std::vector<int> peers, Timeout timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  if (timeout == absl::ZeroDuration() && !running->async_calls->idle()) {  // it polls
    return Raise(absl::DeadlineExceededError(
        absl::StrCat("no message was looked for: a call of group ", running->group->name(),
                     " is pending")));
  }
  MessageInfo info;
  const CallOptions options = WithTimeout(timeout);
  const Object done(RunOnAllRanks(*running, options, [&](client::Group& group) {
    const absl::StatusOr<MessageInfo> message = group.AwaitMessage(peers, options);
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
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const auto allocate = [&] {
    return running->group->Allocate(static_cast<DataType>(type), Shape(shape.begin(), shape.end()),
                                    device.has_value() ? Device::Cuda(*device) : Device::Host());
  };
  absl::StatusOr<Tensor> tensor;
  if (device.has_value()) {  // the driver may wait for the GPU
    const GilRelease release;
    tensor = allocate();
  } else {
    tensor = allocate();
  }
  if (!tensor.ok()) return Raise(tensor.status());
  return WriteMemory(*std::move(tensor));
}

PyObject* AwaitStreams(GroupHandle& handle, Timeout timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const CallOptions options = WithTimeout(timeout);
  const auto wait = [options](client::Group& group) { return group.AwaitStreams(options); };
  if (running->async_calls->idle()) return RunOnAllRanks(*running, options, wait);
  const auto end = [&](const absl::Status& reason) { running->group->Abort(reason); };
  Blocking blocking(end, &*running);
  if (blocking.raised()) return nullptr;
  const absl::Status status = blocking.Run([&] {
    return running->AwaitCall(running->async_calls->Start(wait), options, true);
  });
  return status.ok() && !blocking.raised() ? WriteNone() : blocking.Raise(status);
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
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  running->group->Abort(absl::AbortedError(reason));
  return WriteNone();
}

// Closes the group for later calls, and ends the calls of other threads. Returns a share that leaves;
// null if it was closed before. `why` is not empty if the other ranks must not wait for calls that
// this rank will not make: then they hear it at once.
Share<RunningGroup> Close(GroupHandle& handle, const std::string& why) {
  Share<RunningGroup> running = handle.Take();
  if (running == nullptr) return running;
  if (!why.empty()) {
    running->group->Abort(absl::AbortedError(why));
    running->cancellation->Cancel(absl::AbortedError(why));
  }
  Blocking::EndCallsOf(&*running, absl::CancelledError("it closed the group"),
                       GroupHandle::kEndOfCalls);
  return running;
}

PyObject* Release(GroupHandle& handle, std::string why) {
  const Share<RunningGroup> running = Close(handle, why);
  if (running == nullptr) return WriteNone();
  const auto end = [&](const absl::Status& reason) { running->group->Abort(reason); };
  Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  blocking.Run([&] { running->End("it closed the group"); });
  return blocking.raised() ? blocking.Raise(absl::OkStatus()) : WriteNone();
}

// As Release, without waiting: see AwaitDepartures.
PyObject* StartRelease(GroupHandle& handle, std::string why) {
  Share<RunningGroup> running = Close(handle, why);
  if (running == nullptr) return WriteNone();
  Depart(std::move(running), [](RunningGroup& group) { group.End("its process ended"); });
  return WriteNone();
}

// The facts that may change with the generation: name, rank, size, number of the generation.
PyObject* Facts(GroupHandle& handle) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const client::Group& group = *running->group;
  return Py_BuildValue("(NiiL)", WriteText(group.name()), group.rank(), group.size(),
                       static_cast<long long>(group.generation()));  // NOLINT: Python's type
}

// The placement, and the device.
PyObject* Place(GroupHandle& handle) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const Device device = running->group->device();
  return Py_BuildValue("(NN)", WriteText(NameOf(running->group->placement())),
                       WriteText(device.is_host() ? "cpu" : device.ToString()));
}

PyObject* Paths(GroupHandle& handle) {
  const Share<RunningGroup> running = handle.Use();
  return running == nullptr ? nullptr : WriteList(running->group->paths(), WriteText);
}

PyObject* Hosts(GroupHandle& handle) {
  const Share<RunningGroup> running = handle.Use();
  return running == nullptr ? nullptr : WriteList(running->group->hosts(), WriteText);
}

PyObject* Stats(GroupHandle& handle) {
  const Share<RunningGroup> running = handle.Use();
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
  Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<std::unique_ptr<client::Group>> group =
      blocking.Run([&] { return form.Join(cancellation); });
  if (!group.ok()) return blocking.Raise(group.status());
  const Share<RunningGroup> running(
      std::make_shared<RunningGroup>(*std::move(group), std::move(form), cancellation));
  if (blocking.raised()) return blocking.Raise(absl::OkStatus());
  return WriteInstance(std::make_unique<GroupHandle>(running.get()));
}

// The number of a reduction by any of its names, and its scale.
PyObject* ReadReduction(PyObject* /*module*/, PyObject* op) {
  Reduction reduction;
  if (!Read(op, "op", &reduction)) return nullptr;
  return Py_BuildValue("(id)", static_cast<int>(reduction.op), reduction.scale);
}

PyMethodDef methods[] = {Method<&RunCollective>("run"),
                         Method<&RunRaggedCollective>("run_ragged"),
                         Method<&StartCollective>("start"),
                         Method<&AllReduceCoalesced>("all_reduce_coalesced"),
                         Method<&Barrier>("barrier"),
                         Method<&FailCollective>("fail", {"reason", "timeout", "on_stream"}),
                         Method<&ExchangeSizes>("exchange_sizes"),
                         Method<&Exchange>("exchange", {"transfers", "timeout"}),
                         Method<&AwaitMessage>("await_message", {"peers", "timeout"}),
                         Method<&Allocate>("allocate", {"dtype", "shape", "device"}),
                         Method<&AwaitStreams>("await_streams", {"timeout"}),
                         Method<&SendObject>("send_object", {"obj", "destination", "timeout"}),
                         Method<&ReceiveObject>("receive_object", {"source", "timeout"}),
                         Method<&BroadcastObject>("broadcast_object", {"obj", "root", "timeout"}),
                         Method<&AllGatherObjects>("all_gather_objects", {"obj", "timeout"}),
                         Method<&StartRaggedCollective>("start_ragged"),
                         Method<&StartAllReduceCoalesced>("start_all_reduce_coalesced"),
                         Method<&StartBarrier>("start_barrier"),
                         Method<&StartExchange>("start_exchange", {"transfers", "timeout"}),
                         Method<&StartExchangeSizes>("start_exchange_sizes"),
                         Method<&StartSendObject>("start_send_object",
                                                  {"completions", "obj", "destination", "timeout"}),
                         Method<&StartReceiveObject>("start_receive_object",
                                                     {"completions", "source", "timeout"}),
                         Method<&StartBroadcastObject>("start_broadcast_object",
                                                       {"completions", "obj", "root", "timeout"}),
                         Method<&StartAllGatherObjects>("start_all_gather_objects",
                                                        {"completions", "obj", "timeout"}),
                         Method<&StartRejoin>("start_rejoin", {"completions", "timeout"}),
                         Method<&SendMap>("send_map"),
                         Method<&ReceiveMap>("receive_map"),
                         Method<&BroadcastMap>("broadcast_map"),
                         Method<&CreateQueue>("create_queue"),
                         Method<&StartCreateQueue>("start_create_queue",
                                                   {"completions", "options"}),
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
                         MethodAlsoInChild<&Release>("release", {"why"}),
                         MethodAlsoInChild<&StartRelease>("start_release", {"why"}),
                         Method<&Facts>("facts"),
                         Method<&Place>("place"),
                         Method<&Paths>("paths"),
                         Method<&Hosts>("hosts"),
                         Method<&Stats>("stats"),
                         {}};
PyMethodDef functions[] = {Function<&Join>("join_group"),
                           Function<&StartJoinGroup>("start_join_group", METH_VARARGS),
                           Function<&ReadReduction>("read_reduction"),
                           {}};

}  // namespace

bool AddGroup(PyObject* module) {
  const Object type(MakeType<GroupHandle>("cohort._core.Group", methods));
  return type && PyModule_AddObjectRef(module, "Group", type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0 && AddPendingCall(module);
}

}  // namespace cohort::python
