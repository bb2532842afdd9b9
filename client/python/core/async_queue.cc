#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/parallel/queue/message_queue.h"
#include "client/python/core/async_call.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/message_queue.h"
#include "client/python/core/method.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {
namespace {

using client::Cancellation;
using parallel::MessageQueue;
using parallel::QueueCall;
using parallel::QueueOptions;
using Queue = std::shared_ptr<Completions>;
using Timeout = std::optional<absl::Duration>;

absl::StatusOr<bool> Done(const absl::Status& status) {
  if (!status.ok()) return status;
  return true;
}
PyObject* None(bool /*done*/) { return WriteNone(); }

// Returns the queue of `make(options)`, which runs on a thread.
template <typename Make>
PyObject* StartMaking(const Queue& completions, QueueOptions options, Make make) {
  using Made = std::unique_ptr<MessageQueue>;
  return StartThreadCall<Made>(
      completions,
      [options, make](const std::shared_ptr<Cancellation>& cancellation) mutable {
        options.cancellation = cancellation.get();
        return make(options);
      },
      [](Made& queue) { return WriteInstance(std::make_unique<QueueHandle>(std::move(queue))); });
}

}  // namespace

PyObject* StartEnqueue(QueueHandle& handle, Queue completions, Bytes value, Timeout timeout) {
  const std::shared_ptr<MessageQueue> queue = handle.Use().get();
  if (queue == nullptr) return nullptr;
  return StartThreadCall<bool>(
      completions,
      [queue, timeout, bytes = std::string(value.view())](
          const std::shared_ptr<Cancellation>& cancellation) {
        return Done(queue->Enqueue(bytes, {timeout, cancellation.get()}));
      },
      None);
}

PyObject* StartDequeue(QueueHandle& handle, Queue completions, Timeout timeout) {
  const std::shared_ptr<MessageQueue> queue = handle.Use().get();
  if (queue == nullptr) return nullptr;
  return StartThreadCall<std::string>(
      completions,
      [queue, timeout](
          const std::shared_ptr<Cancellation>& cancellation) -> absl::StatusOr<std::string> {
        const auto view = queue->AcquireView({timeout, cancellation.get()});
        if (!view.ok()) return view.status();
        return std::string(view->value());
      },
      WriteBytes);
}

PyObject* StartAwaitReaders(QueueHandle& handle, Queue completions, int count, Timeout timeout) {
  const std::shared_ptr<MessageQueue> queue = handle.Use().get();
  if (queue == nullptr) return nullptr;
  return StartThreadCall<bool>(
      completions,
      [queue, count, timeout](const std::shared_ptr<Cancellation>& cancellation) {
        return Done(queue->AwaitReaders(count, {timeout, cancellation.get()}));
      },
      None);
}

PyObject* StartOpenQueue(PyObject* /*module*/, PyObject* arguments) {
  PyObject* to = nullptr;    // borrowed
  PyObject* dict = nullptr;  // borrowed
  Queue completions;
  if (!PyArg_ParseTuple(arguments, "OO", &to, &dict) || !Read(to, "completions", &completions)) {
    return nullptr;
  }
  Options options(dict);
  QueueOptions queue;
  Blob handle;
  std::string reader;
  if (!options.Get("handle", &handle) || !options.Get("reader", &reader) ||
      !ReadQueueOptions(options, &queue)) {
    return nullptr;
  }
  return StartMaking(completions, queue, [handle, reader](const QueueOptions& made) {
    return MessageQueue::Open(handle.bytes, reader, made);
  });
}

PyObject* StartCreateQueue(GroupHandle& handle, Queue completions, PyObject* dict) {
  const std::shared_ptr<RunningGroup> running = handle.Use().get();
  if (running == nullptr) return nullptr;
  Options options(dict);
  QueueOptions queue;
  // The other ranks wait for this one.
  if (!ReadQueueOptions(options, &queue)) queue.failure = TakeException();
  return StartMaking(completions, queue, [running](const QueueOptions& made) {
    return MessageQueue::Create(*running->group, made);
  });
}

}  // namespace cohort::python
