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
#include "base/collective/collective_call.h"
#include "base/tensor/data_type.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/python/core/array.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/python/core/rendezvous.h"
#include "client/rendezvous/call/cancellation.h"
#include "worker/group/local_group.h"

namespace cohort::python {
namespace {

using client::CallOptions;
using Timeout = std::optional<absl::Duration>;

// A group with the thread of its asynchronous calls, which starts with the first of them.
struct RunningGroup {
  explicit RunningGroup(std::unique_ptr<client::Group> made)
      : group(std::move(made)), async_calls(std::make_unique<client::AsyncCalls>(*group)) {}

  const std::unique_ptr<client::Group> group;
  std::unique_ptr<client::AsyncCalls> async_calls;  // with the interpreter's lock; null: closed
};
using Group = Handle<RunningGroup>;

CallOptions WithTimeout(Timeout timeout) {
  CallOptions options;
  options.timeout = timeout;
  return options;
}

// Runs `call(group)` as a blocking call. A signal ends a collective on all ranks, because the other
// ranks wait for this one.
template <typename Call>
PyObject* RunStatus(RunningGroup& running, const Call& call) {
  const auto end = [&](const absl::Status& reason) { running.group->Abort(reason); };
  const Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  const absl::Status status = blocking.Run([&] { return call(*running.group); });
  return status.ok() ? WriteNone() : blocking.Raise(status);
}

// The same for calls with a result. A signal ends a call to the coordinator for this rank alone.
template <typename Call, typename Write>
PyObject* RunResult(const Group& handle, const Call& call, const Write& write) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::Cancellation cancellation;
  const auto end = [&](const absl::Status& reason) { cancellation.Cancel(reason); };
  const Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  const auto result = blocking.Run([&] {
    const client::CancellationScope scope(cancellation);
    return call(*running->group);
  });
  return result.ok() ? write(*result) : blocking.Raise(result.status());
}

// The exception that is set, as a status for the other ranks. Clears it.
absl::Status TakeException() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Object type_kept(type), value_kept(value), trace_kept(trace);
  const Object text(value == nullptr ? nullptr : PyObject_Str(value));
  std::string message = "the arguments cannot be read";
  if (text) Read(text.get(), "message", &message);
  PyErr_Clear();
  return absl::InvalidArgumentError(message);
}

// The arguments of a collective. None stands for no tensor.
struct Arguments {
  Array input;
  Array output;
  CollectiveCall call;

  // Returns why the arguments do not fit. The tensors are the caller's.
  absl::Status Read(int collective, int rank, PyObject* from, PyObject* to,
                    const Reduction& reduction, int dim, int root) {
    const auto kind = static_cast<Collective>(collective);
    // A broadcast has one tensor, which its root only reads.
    const bool only_reads = kind == Collective::kBroadcast && rank == root;
    if ((from != Py_None && !input.Read(from, "input", Access::kRead)) ||
        (to != Py_None && !output.Read(to, kind == Collective::kBroadcast ? "tensor" : "output",
                                       only_reads ? Access::kRead : Access::kWrite))) {
      return TakeException();
    }
    const Tensor& described = kind == Collective::kBroadcast ? output.tensor() : input.tensor();
    call = MakeCall(kind, described, output.tensor());
    call.reduction = reduction;
    call.dim = dim;
    call.root = root;
    return absl::OkStatus();
  }
  const Tensor& first() const {
    return call.collective == Collective::kBroadcast ? output.tensor() : input.tensor();
  }
};

PyObject* Run(Group& handle, int collective, PyObject* input, PyObject* output, Reduction reduction,
              int dim, int root, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Arguments arguments;
  const absl::Status fit =
      arguments.Read(collective, running->group->rank(), input, output, reduction, dim, root);
  return RunStatus(*running, [&](client::Group& group) {
    const CallOptions options = WithTimeout(timeout);
    if (!fit.ok()) return group.FailCollectiveAs(fit, options);
    return group.Run(arguments.call, arguments.first(), arguments.output.tensor(), options);
  });
}

PyObject* RunRagged(Group& handle, int collective, PyObject* input, PyObject* output,
                    Reduction reduction, PyObject* dim_and_root, std::vector<int64_t> sizes,
                    Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  std::vector<int> places;
  if (!python::Read(dim_and_root, "dim", &places)) return nullptr;
  Arguments arguments;
  const absl::Status fit = arguments.Read(collective, running->group->rank(), input, output,
                                          reduction, places.at(0), places.at(1));
  // all_to_all_v has the sizes that this rank sends, and then those that it receives.
  const absl::Span<const int64_t> all(sizes);
  const size_t first =
      arguments.call.collective == Collective::kAllToAllV ? all.size() / 2 : all.size();
  arguments.call.sizes = all.first(first);
  arguments.call.output_sizes = all.subspan(first);
  return RunStatus(*running, [&](client::Group& group) {
    const CallOptions options = WithTimeout(timeout);
    if (!fit.ok()) return group.FailCollectiveAs(fit, options);
    return group.Run(arguments.call, arguments.first(), arguments.output.tensor(), options);
  });
}

// Reads a sequence of arrays.
absl::Status ReadArrays(PyObject* sequence, const char* name, Access access,
                        std::vector<std::unique_ptr<Array>>* arrays, std::vector<Tensor>* tensors) {
  std::vector<PyObject*> items;
  if (!Read(sequence, name, &items)) return TakeException();
  for (PyObject* const item : items) {
    arrays->push_back(std::make_unique<Array>());
    if (!arrays->back()->Read(item, name, access)) return TakeException();
    tensors->push_back(arrays->back()->tensor());
  }
  return absl::OkStatus();
}

PyObject* AllReduceCoalesced(Group& handle, PyObject* inputs, PyObject* outputs,
                             Reduction reduction, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<Tensor> from, to;
  absl::Status fit = ReadArrays(inputs, "inputs", Access::kRead, &arrays, &from);
  if (fit.ok()) fit = ReadArrays(outputs, "outputs", Access::kWrite, &arrays, &to);
  return RunStatus(*running, [&](client::Group& group) {
    const CallOptions options = WithTimeout(timeout);
    if (!fit.ok()) return group.FailCollectiveAs(fit, options);
    return group.AllReduceCoalesced(from, to, reduction, options);
  });
}

PyObject* Barrier(Group& handle, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  return RunStatus(*running,
                   [&](client::Group& group) { return group.Barrier(WithTimeout(timeout)); });
}

PyObject* ExchangeSizes(Group& handle, int64_t own, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::Sizes sizes;
  const Object done(RunStatus(*running, [&](client::Group& group) {
    absl::StatusOr<client::Sizes> all = group.ExchangeSizes(own, WithTimeout(timeout));
    if (all.ok()) sizes = *std::move(all);
    return all.status();
  }));
  if (!done) return nullptr;
  return WriteList(sizes, [](int64_t size) { return Write(size); });
}

// One message: to `peer` if `sends`, or else from it.
PyObject* Exchange(Group& handle, std::vector<PyObject*> transfers, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<client::TensorTransfer> plan;
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
    next.tensor = arrays.back()->tensor();
    plan.push_back(std::move(next));
  }
  return RunStatus(
      *running, [&](client::Group& group) { return group.Exchange(plan, WithTimeout(timeout)); });
}

PyObject* AwaitMessage(Group& handle, std::vector<int> peers, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  MessageInfo info;
  const Object done(RunStatus(*running, [&](client::Group& group) {
    const absl::StatusOr<MessageInfo> message = group.AwaitMessage(peers, WithTimeout(timeout));
    if (message.ok()) info = *message;
    return message.status();
  }));
  if (!done) return nullptr;
  return Py_BuildValue("(iNL)", info.peer, WriteText(NameOf(info.type)),
                       static_cast<long long>(info.count));  // NOLINT: Python's type
}

// One asynchronous call.
using Pending = client::PendingCall;

PyObject* Start(Group& handle, int collective, PyObject* input, PyObject* output,
                Reduction reduction, int dim, int root, Timeout timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Arguments arguments;
  const absl::Status fit =
      arguments.Read(collective, running->group->rank(), input, output, reduction, dim, root);
  const CallOptions options = WithTimeout(timeout);
  client::AsyncCalls& calls = *running->async_calls;
  Pending call;
  if (fit.ok()) {
    const Tensor to = output == Py_None ? Tensor() : arguments.output.Keep();
    const bool broadcasts = arguments.call.collective == Collective::kBroadcast;
    const Tensor from = broadcasts ? to : input == Py_None ? Tensor() : arguments.input.Keep();
    call = calls.Start([kept = KeptCall(arguments.call, from, to), options](client::Group& group) {
      return group.Run(kept.View(), kept.input, kept.output, options);
    });
  } else {
    call = calls.Start(
        [fit, options](client::Group& group) { return group.FailCollectiveAs(fit, options); });
  }
  return WriteInstance(std::make_unique<Pending>(std::move(call)));
}

PyObject* Test(Pending& pending) {
  const std::optional<absl::Status> status = pending.Test();
  if (!status.has_value()) return Write(false);
  return status->ok() ? Write(true) : Raise(*status);
}

PyObject* Wait(Pending& pending, Timeout timeout) {
  const Pending call = pending;
  const auto end = [&](const absl::Status& /*reason*/) { call.Cancel(); };
  const Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  const absl::Status status =
      blocking.Run([&] { return call.Wait(timeout.value_or(absl::InfiniteDuration())); });
  return status.ok() ? WriteNone() : blocking.Raise(status);
}

PyObject* Cancel(Pending& pending) {
  pending.Cancel();
  return WriteNone();
}

PyObject* Allocate(Group& handle, int type, std::vector<int64_t> shape) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  absl::StatusOr<Tensor> tensor =
      running->group->Allocate(static_cast<DataType>(type), Shape(shape.begin(), shape.end()));
  if (!tensor.ok()) return Raise(tensor.status());
  return WriteMemory(*std::move(tensor));
}

PyObject* SendObject(Group& handle, Bytes object, int destination, Timeout timeout) {
  return RunResult(
      handle,
      [&](client::Group& group) -> absl::StatusOr<bool> {
        const absl::Status sent =
            group.SendObject(object.view(), destination, WithTimeout(timeout));
        if (!sent.ok()) return sent;
        return true;
      },
      [](bool) { return WriteNone(); });
}

PyObject* ReceiveObject(Group& handle, int source, Timeout timeout) {
  return RunResult(
      handle,
      [&](client::Group& group) { return group.ReceiveObject(source, WithTimeout(timeout)); },
      WriteBytes);
}

PyObject* BroadcastObject(Group& handle, Bytes object, int root, Timeout timeout) {
  return RunResult(
      handle,
      [&](client::Group& group) {
        return group.BroadcastObject(object.view(), root, WithTimeout(timeout));
      },
      WriteBytes);
}

PyObject* AllGatherObjects(Group& handle, Bytes object, Timeout timeout) {
  return RunResult(
      handle,
      [&](client::Group& group) {
        return group.AllGatherObjects(object.view(), WithTimeout(timeout));
      },
      [](const std::vector<std::string>& objects) { return WriteList(objects, WriteBytes); });
}

PyObject* Rejoin(Group& handle, absl::Duration timeout) {
  return RunResult(
      handle,
      [&](client::Group& group) -> absl::StatusOr<bool> {
        const absl::Status joined = group.Rejoin(timeout);
        if (!joined.ok()) return joined;
        return true;
      },
      [](bool) { return WriteNone(); });
}

PyObject* Abort(Group& handle, std::string reason) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  running->group->Abort(absl::AbortedError(reason));
  return WriteNone();
}

PyObject* Release(Group& handle) {
  std::shared_ptr<RunningGroup> running = handle.Take();
  if (running != nullptr) {
    // Ends the asynchronous calls now, although other threads may still use the group.
    std::unique_ptr<client::AsyncCalls> calls = std::move(running->async_calls);
    const GilRelease release;
    calls.reset();
    running.reset();
  }
  return WriteNone();
}

// The facts that may change with the generation: name, rank, size, number of the generation.
PyObject* Facts(Group& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const client::Group& group = *running->group;
  return Py_BuildValue("(NiiL)", WriteText(group.name()), group.rank(), group.size(),
                       static_cast<long long>(group.generation()));  // NOLINT: Python's type
}

PyObject* Paths(Group& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  return running == nullptr ? nullptr : WriteList(running->group->paths(), WriteText);
}

PyObject* Hosts(Group& handle) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
  return running == nullptr ? nullptr : WriteList(running->group->hosts(), WriteText);
}

PyObject* Stats(Group& handle) {
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
  worker::LocalGroupOptions local;
  if (!ReadMembership(options, &local.membership) ||
      !options.Get("advertised_host", &local.bootstrap.advertised_host) ||
      !options.Get("host_identity", &local.bootstrap.host_identity) || !options.Finish()) {
    return nullptr;
  }
  local.timeout = local.membership.timeout;
  local.bootstrap.timeout = local.membership.join_timeout;
  local.membership.cancellation = std::make_shared<client::Cancellation>();
  local.bootstrap.cancellation = local.membership.cancellation;
  const auto end = [&](const absl::Status& reason) {
    local.membership.cancellation->Cancel(reason);
  };
  const Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<std::unique_ptr<worker::LocalGroup>> group =
      blocking.Run([&] { return worker::LocalGroup::Create(local); });
  if (!group.ok()) return blocking.Raise(group.status());
  return WriteInstance(std::make_unique<Group>(std::make_shared<RunningGroup>(*std::move(group))));
}

PyMethodDef group_methods[] = {Method<&Run>("run"),
                               Method<&RunRagged>("run_ragged"),
                               Method<&AllReduceCoalesced>("all_reduce_coalesced"),
                               Method<&Barrier>("barrier"),
                               Method<&ExchangeSizes>("exchange_sizes"),
                               Method<&Exchange>("exchange"),
                               Method<&AwaitMessage>("await_message"),
                               Method<&Start>("start"),
                               Method<&Allocate>("allocate"),
                               Method<&SendObject>("send_object"),
                               Method<&ReceiveObject>("receive_object"),
                               Method<&BroadcastObject>("broadcast_object"),
                               Method<&AllGatherObjects>("all_gather_objects"),
                               Method<&Rejoin>("rejoin"),
                               Method<&Abort>("abort"),
                               Method<&Release>("release"),
                               Method<&Facts>("facts"),
                               Method<&Paths>("paths"),
                               Method<&Hosts>("hosts"),
                               Method<&Stats>("stats"),
                               {}};
PyMethodDef pending_methods[] = {
    Method<&Test>("test"), Method<&Wait>("wait"), Method<&Cancel>("cancel"), {}};
PyMethodDef functions[] = {{"join_group", Join, METH_O, nullptr}, {}};

}  // namespace

bool AddGroup(PyObject* module) {
  const Object group(MakeType<Group>("cohort._core.Group", group_methods));
  const Object pending(MakeType<Pending>("cohort._core.PendingCall", pending_methods));
  return group && pending && PyModule_AddObjectRef(module, "Group", group.get()) == 0 &&
         PyModule_AddObjectRef(module, "PendingCall", pending.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
