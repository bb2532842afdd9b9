#include "client/python/core/message_queue.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/parallel/queue/message_queue.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/convert.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {
namespace {

using parallel::MessageQueue;
using parallel::QueueCall;
using parallel::QueueOptions;
using Queue = QueueHandle;
using Timeout = std::optional<absl::Duration>;

// A larger value is copied without the interpreter's lock.
constexpr size_t kSmallBytes = size_t{64} << 10;

// Runs `call(queue, limits)`, which returns a Status or StatusOr; a signal ends it for this process
// alone. Returns `write(result)` if it succeeds, and else null with an exception.
template <typename Call, typename Write>
PyObject* CallQueue(const Share<MessageQueue>& queue, const Timeout& timeout, const Call& call,
                    const Write& write) {
  if (queue == nullptr) return nullptr;
  client::Cancellation cancellation;
  const auto end = [&](const absl::Status& reason) { cancellation.Cancel(reason); };
  Blocking blocking(end, &*queue);
  if (blocking.raised()) return nullptr;
  const QueueCall limits = {timeout, &cancellation};
  auto result = blocking.Run([&] { return call(*queue, limits); });
  if (result.ok() && !blocking.raised()) return write(result);
  if constexpr (std::is_same_v<decltype(result), absl::Status>) {
    return blocking.Raise(result);
  } else {
    return blocking.Raise(result.status());
  }
}

PyObject* None(const absl::Status& /*status*/) { return WriteNone(); }

PyObject* Enqueue(Queue& handle, Bytes value, Timeout timeout) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, timeout,
      [&](MessageQueue& q, const QueueCall& call) { return q.Enqueue(value.view(), call); }, None);
}

PyObject* CopyOf(absl::string_view value) {
  if (value.size() <= kSmallBytes) return WriteBytes(value);
  PyObject* const bytes =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(value.size()));
  if (bytes == nullptr) return nullptr;
  char* const to = PyBytes_AsString(bytes);
  const GilRelease release;
  std::memcpy(to, value.data(), value.size());
  return bytes;
}

PyObject* Dequeue(Queue& handle, Timeout timeout) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, timeout,
      [](MessageQueue& q, const QueueCall& call) { return q.AcquireView(call); },
      [](const absl::StatusOr<parallel::QueueView>& view) { return CopyOf(view->value()); });
}

// --- A value in place: an object with the buffer protocol.

struct View {
  std::shared_ptr<MessageQueue> queue;  // outlives the view
  std::optional<parallel::QueueView> view;
  Py_ssize_t buffers = 0;  // of Python, with the interpreter's lock
};

View& ViewOf(PyObject* object) { return *reinterpret_cast<Instance<View>*>(object)->value; }

int GetBuffer(PyObject* self, PyBufferView* buffer, int flags) {
  View& view = ViewOf(self);
  if (!view.view.has_value()) {
    PyErr_SetString(PyExc_BufferError, "the view of the value was released");
    return -1;
  }
  const absl::string_view value = view.view->value();
  if (PyBuffer_FillInfo(buffer, self, const_cast<char*>(value.data()),
                        static_cast<Py_ssize_t>(value.size()), /*readonly=*/1, flags) != 0) {
    return -1;
  }
  ++view.buffers;
  return 0;
}

void ReleaseBuffer(PyObject* self, PyBufferView* /*buffer*/) { --ViewOf(self).buffers; }

PyObject* AcquireView(Queue& handle, Timeout timeout) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, timeout,
      [](MessageQueue& q, const QueueCall& call) { return q.AcquireView(call); },
      [&](absl::StatusOr<parallel::QueueView>& view) {
        auto result = std::make_unique<View>();
        result->queue = queue.get();
        result->view.emplace(*std::move(view));
        return WriteInstance(std::move(result));
      });
}

PyObject* EndView(View& view) {
  if (view.buffers > 0) {
    PyErr_SetString(PyExc_BufferError,
                    "a slice or an array of the value is still in use; the writer gets the value's "
                    "place back when it is dropped");
    return nullptr;
  }
  // A child that was forked has no part in its parent's queue.
  if (!Forked()) view.view.reset();
  return WriteNone();
}

// --- Making queues.

}  // namespace

bool ReadQueueOptions(Options& options, QueueOptions* to) {
  Blob external_writer;
  if (!options.Get("external_writer", &external_writer)) return false;
  to->external_writer = std::move(external_writer.bytes);
  return options.Get("writer_rank", &to->writer_rank) &&
         options.Get("block_bytes", &to->block_bytes) && options.Get("blocks", &to->blocks) &&
         options.Get("max_value_bytes", &to->max_value_bytes) &&
         options.Get("join_timeout", &to->join_timeout) &&
         options.Get("timeout", &to->timeout) && options.Get("listen", &to->listen) &&
         options.Get("advertise", &to->advertise) && options.Get("linger", &to->linger) &&
         options.Finish();
}

namespace {

// Returns the queue of `make(options)`, which may block. A handler of a signal that raises, and the
// end of `world` (may be null), end it on all ranks.
template <typename Make>
PyObject* MakeQueue(QueueOptions options, RunningGroup* world, const Make& make) {
  client::Cancellation cancellation;
  options.cancellation = &cancellation;
  const auto end = [&](const absl::Status& reason) {
    cancellation.Cancel(reason);
    if (world != nullptr) world->group->Abort(reason);
  };
  Blocking blocking(end, world);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<std::unique_ptr<MessageQueue>> queue = blocking.Run([&] { return make(options); });
  if (!queue.ok()) return blocking.Raise(queue.status());
  Share<MessageQueue> made(std::shared_ptr<MessageQueue>(*std::move(queue)));
  if (blocking.raised()) return blocking.Raise(absl::OkStatus());
  return WriteInstance(std::make_unique<Queue>(made.get()));
}

PyObject* CreateExternal(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  QueueOptions queue;
  std::string name;
  if (!options.Get("name", &name) || !ReadQueueOptions(options, &queue)) return nullptr;
  return MakeQueue(queue, nullptr, [&](const QueueOptions& made) {
    return MessageQueue::CreateExternal(name, made);
  });
}

PyObject* Open(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  QueueOptions queue;
  Blob handle;
  std::string reader;
  if (!options.Get("handle", &handle) || !options.Get("reader", &reader) ||
      !ReadQueueOptions(options, &queue)) {
    return nullptr;
  }
  return MakeQueue(queue, nullptr, [&](const QueueOptions& made) {
    return MessageQueue::Open(handle.bytes, reader, made);
  });
}

// --- The other methods.

// Facts that do not change.
PyObject* Facts(Queue& handle) {
  const Share<MessageQueue> queue = handle.Use();
  if (queue == nullptr) return nullptr;
  return Py_BuildValue("(NNNN)", WriteText((*queue).name()), Write((*queue).is_writer()),
                       WriteBytes((*queue).handle()), WriteText((*queue).path()));
}

PyObject* Readers(Queue& handle) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, std::nullopt,
      [](MessageQueue& q, const QueueCall& /*call*/) {
        return absl::StatusOr<std::vector<parallel::QueueReader>>(q.readers());
      },
      [](const auto& readers) {
        return WriteList(*readers, [](const parallel::QueueReader& reader) {
          return Py_BuildValue("(NNLL)", WriteText(reader.name), WriteText(reader.path),
                               static_cast<long long>(reader.bytes_behind),    // NOLINT: Python's
                               static_cast<long long>(reader.values_behind));  // NOLINT: Python's
        });
      });
}

PyObject* Departures(Queue& handle) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, std::nullopt,
      [](MessageQueue& q, const QueueCall& /*call*/) {
        return absl::StatusOr<std::vector<parallel::QueueDeparture>>(q.departures());
      },
      [](const auto& departures) {
        return WriteList(*departures, [](const parallel::QueueDeparture& departure) {
          return Py_BuildValue("(NN)", WriteText(departure.name), WriteText(departure.why));
        });
      });
}

PyObject* AwaitReaders(Queue& handle, int count, Timeout timeout) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, timeout,
      [&](MessageQueue& q, const QueueCall& call) { return q.AwaitReaders(count, call); }, None);
}

PyObject* Shutdown(Queue& handle, std::string reason) {
  const Share<MessageQueue> queue = handle.Use();
  return CallQueue(
      queue, std::nullopt,
      [&](MessageQueue& q, const QueueCall& /*call*/) {
        q.Shutdown(reason);
        return absl::OkStatus();
      },
      None);
}

PyObject* Release(Queue& handle) {
  const Share<MessageQueue> queue = handle.Take();
  if (queue == nullptr) return WriteNone();
  const GilRelease release;
  // Ends the calls of other threads, one of which then drops the queue.
  queue->Shutdown("close() was called");
  return WriteNone();
}

PyMethodDef methods[] = {Method<&Enqueue>("enqueue", {"value", "timeout"}),
                         Method<&Dequeue>("dequeue", {"timeout"}),
                         Method<&AcquireView>("acquire_view", {"timeout"}),
                         Method<&StartEnqueue>("start_enqueue",
                                               {"completions", "value", "timeout"}),
                         Method<&StartDequeue>("start_dequeue", {"completions", "timeout"}),
                         Method<&StartAwaitReaders>("start_await_readers",
                                                    {"completions", "count", "timeout"}),
                         Method<&Facts>("facts"),
                         Method<&Readers>("readers"),
                         Method<&Departures>("departures"),
                         Method<&AwaitReaders>("await_readers", {"count", "timeout"}),
                         Method<&Shutdown>("shutdown", {"reason"}),
                         MethodAlsoInChild<&Release>("release"),
                         {}};
PyMethodDef view_methods[] = {MethodAlsoInChild<&EndView>("release"), {}};
PyMethodDef functions[] = {Function<&CreateExternal>("create_external_queue"),
                           Function<&Open>("open_queue"),
                           Function<&StartOpenQueue>("start_open_queue", METH_VARARGS),
                           {}};

}  // namespace

PyObject* CreateQueue(GroupHandle& handle, PyObject* dict) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Options options(dict);
  QueueOptions queue;
  // The other ranks wait for this one.
  if (!ReadQueueOptions(options, &queue)) queue.failure = TakeException();
  return MakeQueue(queue, &*running, [&](const QueueOptions& made) {
    return MessageQueue::Create(*running->group, made);
  });
}

bool AddMessageQueue(PyObject* module) {
  const Object queue(MakeType<Queue>("cohort._core.MessageQueue", methods));
  if (!queue || PyModule_AddObjectRef(module, "MessageQueue", queue.get()) != 0) return false;
  const Object view(
      MakeType<View>("cohort._core.QueueView", view_methods,
                     {{kGetBufferSlot, reinterpret_cast<void*>(GetBuffer)},
                      {kReleaseBufferSlot, reinterpret_cast<void*>(ReleaseBuffer)}}));
  return view && PyModule_AddObjectRef(module, "QueueView", view.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
