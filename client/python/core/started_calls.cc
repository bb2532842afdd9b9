#include "client/python/core/started_calls.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/python/core/array.h"
#include "client/python/core/async_call.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/group_form.h"
#include "client/python/core/method.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {
namespace {

using client::CallOptions;
using Queue = std::shared_ptr<Completions>;
using Timeout = std::optional<absl::Duration>;

CallOptions WithTimeout(Timeout timeout) {
  CallOptions options;
  options.timeout = timeout;
  return options;
}

// Starts `call(group)`, or else the refusal of `fit`, which fails the call on all ranks.
template <typename Call>
PyObject* Start(GroupHandle& handle, const absl::Status& fit, const CallOptions& options,
                Call call) {
  // Another thread may have closed the group while the arguments were read.
  const std::shared_ptr<RunningGroup> running = handle.Use().get();
  if (running == nullptr) return nullptr;
  client::AsyncCalls& calls = *running->async_calls;
  client::PendingCall started = fit.ok()
                                    ? calls.Start(std::move(call))
                                    : calls.Start([fit, options](client::Group& group) {
                                        return group.FailCollectiveAs(fit, options);
                                      });
  return WriteInstance(std::make_unique<client::PendingCall>(std::move(started)));
}

}  // namespace

PyObject* StartRaggedCollective(GroupHandle& handle, int collective, PyObject* input,
                                PyObject* output, PyObject* op, PyObject* dim, PyObject* root,
                                PyObject* sizes, PyObject* timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use().get();
  if (running == nullptr) return nullptr;
  CollectiveArguments arguments;
  const absl::Status fit =
      arguments.Read(static_cast<Collective>(collective), running->group->rank(),
                     {input, output, op, dim, root, sizes, timeout});
  const CallOptions options = arguments.options();
  KeptCall kept;
  if (fit.ok()) kept = arguments.Keep();
  return Start(handle, fit, options, [kept = std::move(kept), options](client::Group& group) {
    return group.Run(kept.View(), kept.input, kept.output, options);
  });
}

PyObject* StartAllReduceCoalesced(GroupHandle& handle, PyObject* inputs, PyObject* outputs,
                                  PyObject* op, PyObject* timeout) {
  CallOptions options;
  Arrays from, to;
  Reduction reduction;
  absl::Status fit = ReadTimeout(timeout, &options);
  if (fit.ok()) fit = from.Read(inputs, "inputs", Access::kRead);
  if (fit.ok()) fit = to.Read(outputs, "outputs", Access::kWrite);
  options.stream = from.stream();
  if (fit.ok() && !Read(op, "op", &reduction)) fit = TakeException();
  return Start(handle, fit, options,
               [from = from.Keep(), to = to.Keep(), reduction, options](client::Group& group) {
                 return group.AllReduceCoalesced(from, to, reduction, options);
               });
}

PyObject* StartBarrier(GroupHandle& handle, PyObject* timeout) {
  CallOptions options;
  const absl::Status fit = ReadTimeout(timeout, &options);
  return Start(handle, fit, options,
               [options](client::Group& group) { return group.Barrier(options); });
}

PyObject* StartExchange(GroupHandle& handle, std::vector<PyObject*> transfers, Timeout timeout) {
  std::vector<client::TensorTransfer> plan;
  CallOptions options = WithTimeout(timeout);
  for (PyObject* const transfer : transfers) {
    client::TensorTransfer next;
    std::vector<PyObject*> parts;
    Array array;
    if (!Read(transfer, "transfer", &parts)) return nullptr;
    if (parts.size() != 3 || !Read(parts[0], "sends", &next.sends) ||
        !Read(parts[1], "peer", &next.peer) ||
        !array.Read(parts[2], "tensor", next.sends ? Access::kRead : Access::kWrite)) {
      return nullptr;
    }
    if (array.stream().has_value()) options.stream = array.stream();
    next.tensor = array.Keep();
    plan.push_back(std::move(next));
  }
  return Start(handle, absl::OkStatus(), options,
               [plan = std::move(plan), options](client::Group& group) {
                 return group.Exchange(plan, options);
               });
}

PyObject* StartExchangeSizes(GroupHandle& handle, PyObject* own, PyObject* sizes,
                             PyObject* timeout) {
  CallOptions options;
  int64_t size = 0;
  Array array;
  if (!array.Read(sizes, "sizes", Access::kWrite)) return nullptr;
  absl::Status fit = ReadTimeout(timeout, &options);
  if (fit.ok() && !Read(own, "own", &size)) fit = TakeException();
  return Start(handle, fit, options,
               [kept = array.Keep(), size, options](client::Group& group) {
                 const absl::StatusOr<client::Sizes> all = group.ExchangeSizes(size, options);
                 if (!all.ok()) return all.status();
                 std::copy(all->begin(), all->end(), static_cast<int64_t*>(kept.data()));
                 return absl::OkStatus();
               });
}

namespace {

// Runs `call(group)`, which returns a StatusOr<T>, on a thread.
template <typename T, typename Call, typename Write>
PyObject* StartWithGroup(GroupHandle& handle, const Queue& completions, Call call, Write write) {
  const std::shared_ptr<RunningGroup> running = handle.Use().get();
  if (running == nullptr) return nullptr;
  return StartThreadCall<T>(
      completions,
      [running, call](const std::shared_ptr<client::Cancellation>& cancellation) {
        const client::CancellationScope scope(*cancellation);
        return call(*running->group);
      },
      write);
}

// For calls without a value.
absl::StatusOr<bool> Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return true;
}
PyObject* None(bool /*done*/) { return WriteNone(); }

}  // namespace

PyObject* StartSendObject(GroupHandle& handle, Queue completions, Bytes object, int destination,
                          Timeout timeout) {
  return StartWithGroup<bool>(
      handle, completions,
      [bytes = std::string(object.view()), destination, timeout](client::Group& group) {
        return Done(group.SendObject(bytes, destination, WithTimeout(timeout)));
      },
      None);
}

PyObject* StartReceiveObject(GroupHandle& handle, Queue completions, int source, Timeout timeout) {
  return StartWithGroup<std::string>(
      handle, completions,
      [source, timeout](client::Group& group) {
        return group.ReceiveObject(source, WithTimeout(timeout));
      },
      WriteBytes);
}

PyObject* StartBroadcastObject(GroupHandle& handle, Queue completions, Bytes object, int root,
                               Timeout timeout) {
  return StartWithGroup<std::string>(
      handle, completions,
      [bytes = std::string(object.view()), root, timeout](client::Group& group) {
        return group.BroadcastObject(bytes, root, WithTimeout(timeout));
      },
      WriteBytes);
}

PyObject* StartAllGatherObjects(GroupHandle& handle, Queue completions, Bytes object,
                                Timeout timeout) {
  return StartWithGroup<std::vector<std::string>>(
      handle, completions,
      [bytes = std::string(object.view()), timeout](client::Group& group) {
        return group.AllGatherObjects(bytes, WithTimeout(timeout));
      },
      [](const std::vector<std::string>& objects) { return WriteList(objects, WriteBytes); });
}

PyObject* StartRejoin(GroupHandle& handle, Queue completions, absl::Duration timeout) {
  return StartWithGroup<bool>(
      handle, completions,
      [timeout](client::Group& group) { return Done(group.Rejoin(timeout)); }, None);
}

PyObject* StartJoinGroup(PyObject* /*module*/, PyObject* arguments) {
  PyObject* queue = nullptr;  // borrowed
  PyObject* dict = nullptr;   // borrowed
  Queue completions;
  if (!PyArg_ParseTuple(arguments, "OO", &queue, &dict) ||
      !Read(queue, "completions", &completions)) {
    return nullptr;
  }
  Options options(dict);
  const auto form = std::make_shared<GroupForm>();
  if (!form->Read(options) || !options.Finish()) return nullptr;
  using Made = std::shared_ptr<RunningGroup>;
  return StartThreadCall<Made>(
      completions,
      [form](const std::shared_ptr<client::Cancellation>& cancellation) -> absl::StatusOr<Made> {
        absl::StatusOr<std::unique_ptr<client::Group>> group = form->Join(cancellation);
        if (!group.ok()) return group.status();
        return std::make_shared<RunningGroup>(*std::move(group), std::move(*form), cancellation);
      },
      [](const Made& group) { return WriteInstance(std::make_unique<GroupHandle>(group)); });
}

}  // namespace cohort::python
