#include "client/python/core/collectives.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/async_calls.h"
#include "client/python/core/async_call.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/method.h"

namespace cohort::python {
namespace {

PyObject* Run(GroupHandle& handle, int collective, const RawArguments& raw) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  CollectiveArguments arguments;
  const absl::Status fit =
      arguments.Read(static_cast<Collective>(collective), running->group->rank(), raw);
  return RunOnAllRanks(*running, arguments.options(), [&](client::Group& group) {
    if (!fit.ok()) return group.FailCollectiveAs(fit, arguments.options());
    return group.Run(arguments.call(), arguments.input(), arguments.output(), arguments.options());
  });
}

}  // namespace

PyObject* RunCollective(GroupHandle& handle, int collective, PyObject* input, PyObject* output,
                        PyObject* op, PyObject* dim, PyObject* root, PyObject* timeout) {
  return Run(handle, collective, {input, output, op, dim, root, nullptr, timeout});
}

PyObject* RunRaggedCollective(GroupHandle& handle, int collective, PyObject* input,
                              PyObject* output, PyObject* op, PyObject* dim, PyObject* root,
                              PyObject* sizes, PyObject* timeout) {
  return Run(handle, collective, {input, output, op, dim, root, sizes, timeout});
}

PyObject* AllReduceCoalesced(GroupHandle& handle, PyObject* inputs, PyObject* outputs, PyObject* op,
                             PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::CallOptions options;
  Arrays from, to;
  Reduction reduction;
  absl::Status fit = ReadTimeout(timeout, &options);
  if (fit.ok()) fit = from.Read(inputs, "inputs", Access::kRead);
  if (fit.ok()) fit = to.Read(outputs, "outputs", Access::kWrite);
  options.stream = from.stream();
  if (fit.ok() && !Read(op, "op", &reduction)) fit = TakeException();
  return RunOnAllRanks(*running, options, [&](client::Group& group) {
    if (!fit.ok()) return group.FailCollectiveAs(fit, options);
    return group.AllReduceCoalesced(from.tensors(), to.tensors(), reduction, options);
  });
}

PyObject* Barrier(GroupHandle& handle, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::CallOptions options;
  const absl::Status fit = ReadTimeout(timeout, &options);
  return RunOnAllRanks(*running, options, [&](client::Group& group) {
    return fit.ok() ? group.Barrier(options) : group.FailCollectiveAs(fit, options);
  });
}

PyObject* FailCollective(GroupHandle& handle, std::string reason, PyObject* timeout,
                         bool on_stream) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::CallOptions options;
  // A wrong timeout counts as None: the other ranks wait for this one.
  (void)ReadTimeout(timeout, &options);
  if (on_stream) options.stream.emplace(nullptr);
  return RunOnAllRanks(*running, options, [&](client::Group& group) {
    return group.FailCollective(absl::InvalidArgumentError(reason), options);
  });
}

PyObject* ExchangeSizes(GroupHandle& handle, PyObject* own, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::CallOptions options;
  int64_t size = 0;
  absl::Status fit = ReadTimeout(timeout, &options);
  if (fit.ok() && !Read(own, "own", &size)) fit = TakeException();
  client::Sizes sizes;
  const Object done(RunOnAllRanks(*running, options, [&](client::Group& group) {
    if (!fit.ok()) return group.FailCollectiveAs(fit, options);
    absl::StatusOr<client::Sizes> all = group.ExchangeSizes(size, options);
    if (all.ok()) sizes = *std::move(all);
    return all.status();
  }));
  if (!done) return nullptr;
  return WriteList(sizes, [](int64_t each) { return Write(each); });
}

namespace {

using client::PendingCall;

PyObject* Test(PendingCall& call) {
  const std::optional<absl::Status> status = call.Test();
  if (!status.has_value()) return Write(false);
  return status->ok() ? Write(true) : Raise(*status);
}

PyObject* Wait(PendingCall& pending, std::optional<absl::Duration> timeout) {
  const PendingCall call = pending;
  const auto end = [&](const absl::Status& /*reason*/) { call.Cancel(); };
  Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  const absl::Status status =
      blocking.Run([&] { return call.Wait(timeout.value_or(absl::InfiniteDuration())); });
  return status.ok() && !blocking.raised() ? WriteNone() : blocking.Raise(status);
}

PyObject* Cancel(PendingCall& call) {
  call.Cancel();
  return WriteNone();
}

// The event loop of `completions` gets the end of the call. Cancelling it there changes nothing.
PyObject* StartWait(PendingCall& pending, std::shared_ptr<Completions> completions) {
  return StartCall(completions, [&](const Completions::Call& wait) {
    pending.AddDoneCallback(wait.StatusSlot());
  });
}

PyMethodDef methods[] = {Method<&Test>("test"),
                         Method<&Wait>("wait", {"timeout"}),
                         Method<&StartWait>("start_wait", {"completions"}),
                         Method<&Cancel>("cancel"),
                         {}};

}  // namespace

PyObject* StartCollective(GroupHandle& handle, int collective, PyObject* input, PyObject* output,
                          PyObject* op, PyObject* dim, PyObject* root, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  CollectiveArguments arguments;
  const absl::Status fit =
      arguments.Read(static_cast<Collective>(collective), running->group->rank(),
                     {input, output, op, dim, root, nullptr, timeout});
  const client::CallOptions options = arguments.options();
  // Another thread may have closed the group while the arguments were read.
  if (handle.Use() == nullptr) return nullptr;
  client::AsyncCalls& calls = *running->async_calls;
  PendingCall call = fit.ok()
                         ? calls.Start([kept = arguments.Keep(), options](client::Group& group) {
                             return group.Run(kept.View(), kept.input, kept.output, options);
                           })
                         : calls.Start([fit, options](client::Group& group) {
                             return group.FailCollectiveAs(fit, options);
                           });
  return WriteInstance(std::make_unique<PendingCall>(std::move(call)));
}

bool AddPendingCall(PyObject* module) {
  const Object type(MakeType<PendingCall>("cohort._core.PendingCall", methods));
  return type && PyModule_AddObjectRef(module, "PendingCall", type.get()) == 0;
}

}  // namespace cohort::python
