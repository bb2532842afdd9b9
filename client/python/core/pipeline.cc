#include "client/python/core/pipeline.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/pipeline/pipeline.h"
#include "client/parallel/pipeline/ring_shift.h"
#include "client/python/core/array.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/method.h"

namespace cohort::python {
namespace {

using parallel::Pipeline;
using parallel::PipelineCall;
using parallel::Tensors;
using Received = Pipeline::Received;

struct RunningPipeline {
  std::weak_ptr<RunningGroup> group;  // which has the messages that `pipeline` uses
  bool has_tensor_group = false;
  std::weak_ptr<RunningGroup> tensor_group;
  Pipeline pipeline;

  // A share of the group for one call; null with an exception if the group is closed.
  static Share<RunningGroup> Use(const std::weak_ptr<RunningGroup>& group) {
    Share<RunningGroup> running(group.lock());
    if (running == nullptr) {
      Raise(absl::FailedPreconditionError("close() was called on a group of the pipeline"));
    }
    return running;
  }
};

// The methods of Pipeline, by the numbers that cohort/pipeline.py has, too.
enum class Transfer {
  kRecvForward,
  kRecvBackward,
  kSendForward,
  kSendBackward,
  kSendForwardRecvBackward,
  kSendBackwardRecvForward,
  kSendForwardBackwardRecvForwardBackward,
};

absl::StatusOr<Received> Run(Pipeline& pipeline, Transfer transfer, const Pipeline::Both& what,
                             const PipelineCall& call) {
  Received received;
  const auto set = [](absl::StatusOr<std::optional<Tensors>> from, std::optional<Tensors>* to) {
    if (from.ok()) *to = *std::move(from);
    return from.status();
  };
  absl::Status status;
  switch (transfer) {
    case Transfer::kRecvForward:
      status = set(pipeline.RecvForward({}, call), &received.input);
      break;
    case Transfer::kRecvBackward:
      status = set(pipeline.RecvBackward({}, call), &received.output_gradient);
      break;
    case Transfer::kSendForward:
      status = pipeline.SendForward(*what.output, call);
      break;
    case Transfer::kSendBackward:
      status = pipeline.SendBackward(*what.input_gradient, call);
      break;
    case Transfer::kSendForwardRecvBackward:
      status = set(pipeline.SendForwardRecvBackward({what.output, {}, what.recv_next}, call),
                   &received.output_gradient);
      break;
    case Transfer::kSendBackwardRecvForward:
      status =
          set(pipeline.SendBackwardRecvForward({what.input_gradient, {}, what.recv_prev}, call),
              &received.input);
      break;
    case Transfer::kSendForwardBackwardRecvForwardBackward:
      return pipeline.SendForwardBackwardRecvForwardBackward(what, call);
  }
  if (!status.ok()) return status;
  return received;
}

// One array, or a list or tuple of arrays. Errors: as CollectiveArguments::Read.
absl::Status ReadTensors(PyObject* from, const char* name, Arrays* to) {
  if (PyList_Check(from) || PyTuple_Check(from)) return to->Read(from, name, Access::kRead);
  const Object one(PyTuple_Pack(1, from));
  return one ? to->Read(one.get(), name, Access::kRead) : TakeException();
}

PyObject* WriteTensors(const std::optional<Tensors>& tensors) {
  return tensors.has_value() ? WriteList(*tensors, WriteMemory) : WriteNone();
}

// Returns (inputs, gradients), each a list or None.
PyObject* RunTransfer(RunningPipeline& own, int transfer, PyObject* output, PyObject* gradient,
                      PyObject* recv_prev, PyObject* recv_next, PyObject* timeout) {
  const Share<RunningGroup> running = RunningPipeline::Use(own.group);
  if (running == nullptr) return nullptr;
  Share<RunningGroup> tensor_group;
  if (own.has_tensor_group) {
    tensor_group = RunningPipeline::Use(own.tensor_group);
    if (tensor_group == nullptr) return nullptr;
  }
  const auto kind = static_cast<Transfer>(transfer);
  const bool sends_output = output != Py_None || kind == Transfer::kSendForward;
  const bool sends_gradient = gradient != Py_None || kind == Transfer::kSendBackward;
  Arrays outputs, gradients;
  Pipeline::Both what;
  PipelineCall call;
  call.scatter_gather_tensors = tensor_group != nullptr;
  absl::Status& fit = call.failure;
  fit = ReadTimeout(timeout, &call.options);
  if (fit.ok() && sends_output) fit = ReadTensors(output, "output", &outputs);
  if (fit.ok() && sends_gradient) fit = ReadTensors(gradient, "gradient", &gradients);
  if (fit.ok() && (!Read(recv_prev, "recv_prev", &what.recv_prev) ||
                   !Read(recv_next, "recv_next", &what.recv_next))) {
    fit = TakeException();
  }
  const std::optional<void*>& stream =
      outputs.stream().has_value() ? outputs.stream() : gradients.stream();
  if (sends_output) what.output = outputs.tensors();
  if (sends_gradient) what.input_gradient = gradients.tensors();
  if (!fit.ok()) {
    if (!sends_output && !sends_gradient) return Raise(fit);
    // The receivers get the error, and send nothing back.
    what.recv_prev = what.recv_next = false;
  }
  const MessagesUse use(*running);
  if (!use.is_free()) return nullptr;
  Received received;
  const auto run = [&]() -> absl::Status {
    if (fit.ok()) fit = running->form.AwaitStream(stream, call.options);
    absl::StatusOr<Received> result = Run(own.pipeline, kind, what, call);
    if (!result.ok()) return result.status();
    received = *std::move(result);
    return fit;
  };
  // A signal ends the call in both groups.
  const Object done(RunOnAllRanks(*running, call.options, [&](client::Group&) { return run(); },
                                  tensor_group.get().get()));
  if (!done) return nullptr;
  return Py_BuildValue("(NN)", WriteTensors(received.input),
                       WriteTensors(received.output_gradient));
}

// The place of this rank: its stage, the number of stages, whether it is the first and the last.
PyObject* Place(RunningPipeline& own) {
  const Share<RunningGroup> running = RunningPipeline::Use(own.group);
  if (running == nullptr) return nullptr;
  const Pipeline& pipeline = own.pipeline;
  return Py_BuildValue("(iiNN)", pipeline.stage(), pipeline.stages(), Write(pipeline.is_first()),
                       Write(pipeline.is_last()));
}

PyMethodDef methods[] = {Method<&RunTransfer>("run"), Method<&Place>("place"), {}};

}  // namespace

PyObject* MakePipeline(GroupHandle& handle, PyObject* dict) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Options given(dict);
  parallel::PipelineOptions options;
  PyObject* tensor_group = nullptr;
  if (!given.Get("next_rank", &options.next_rank) || !given.Get("prev_rank", &options.prev_rank) ||
      !given.Get("wrap", &options.wrap) || !given.Get("channel", &options.channel) ||
      !given.Get("tensor_group", &tensor_group) || !given.Finish()) {
    return nullptr;
  }
  Share<RunningGroup> members;
  if (tensor_group != nullptr) {
    GroupHandle* const other = ReadInstance<GroupHandle>(tensor_group, "tensor_group");
    if (other == nullptr || (members = other->Use()) == nullptr) return nullptr;
    options.tensor_group = members->group.get();
  }
  return WriteInstance(std::unique_ptr<RunningPipeline>(
      new RunningPipeline{running.get(), members != nullptr, members.get(),
                          Pipeline(running->MakeMessages(), options)}));
}

PyObject* RingShift(GroupHandle& handle, PyObject* array, PyObject* distance, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  const MessagesUse use(*running);
  if (!use.is_free()) return nullptr;
  parallel::Messages& messages = *running->messages;
  Array input;
  int step = 1;
  client::CallOptions options;
  absl::Status fit = ReadTimeout(timeout, &options);
  if (!Read(distance, "distance", &step) || !input.Read(array, "array", Access::kRead)) {
    fit = TakeException();
  }
  Tensor output;
  const Object done(RunOnAllRanks(*running, options, [&](client::Group&) -> absl::Status {
    if (fit.ok()) fit = running->form.AwaitStream(input.stream(), options);
    if (!fit.ok()) return parallel::FailRingShift(messages, fit, step, options);
    absl::StatusOr<Tensor> shifted = parallel::RingShift(messages, input.tensor(), step, options);
    if (shifted.ok()) output = *std::move(shifted);
    return shifted.status();
  }));
  return done ? WriteMemory(std::move(output)) : nullptr;
}

bool AddPipeline(PyObject* module) {
  const Object type(MakeType<RunningPipeline>("cohort._core.Pipeline", methods));
  return type && PyModule_AddObjectRef(module, "Pipeline", type.get()) == 0;
}

}  // namespace cohort::python
