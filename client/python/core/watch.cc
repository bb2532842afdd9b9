#include "client/python/core/watch.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/python/core/async_call.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/coordinator_call.h"
#include "client/python/core/group_values.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/connection.h"

namespace cohort::python {
namespace {

using client::GroupEvent;
using client::GroupWatcher;
using client::KeyEvent;
using client::KeyWatcher;
using Queue = std::shared_ptr<Completions>;
using Call = Completions::Call;

PyObject* WriteEvent(const KeyEvent& event) {
  const char* const kind = !event.deleted ? "put" : event.expired ? "expired" : "deleted";
  return Py_BuildValue("(sNNN)", kind, WriteText(event.key_value.key),
                       WriteBytes(event.key_value.value), Write(event.key_value.revision));
}

PyObject* WriteEvent(const GroupEvent& event) {
  const bool has_cause = event.cause.kind != client::CauseKind::kNone;
  return Py_BuildValue(
      "(sNNNNNN)", client::EventKindName(event.kind), WriteText(event.member),
      event.rank.has_value() ? Write(*event.rank) : WriteNone(), Write(event.generation),
      has_cause ? WriteText(client::CauseKindName(event.cause.kind)) : WriteNone(),
      WriteText(event.cause.detail), Write(event.revision));
}

// A list; None: the watch has ended.
template <typename Event>
PyObject* WriteEvents(const std::vector<Event>& events) {
  if (events.empty()) return WriteNone();
  return WriteList(events, [](const Event& event) { return WriteEvent(event); });
}

template <typename W>
PyObject* Open(Handle<W>& watch) {
  return CallForStatus(watch, [](W& w) { return w.Open(); });
}

// Appends the next events to a deque, and returns whether there were any. No signal comes in
// between, so none is lost.
template <typename W>
PyObject* Next(Handle<W>& watch, PyObject* to) {
  return CallForResult(
      watch, [](W& w) { return w.Next(); },
      [&](const auto& events) -> PyObject* {
        if (events.empty()) return Write(false);
        const Object list(WriteEvents(events));
        if (!list) return nullptr;
        const Object added(PyObject_CallMethod(to, "extend", "O", list.get()));
        return added ? Write(true) : nullptr;
      });
}

template <typename W, typename Start>
PyObject* StartWatchCall(const Handle<W>& watch, const Queue& queue, const Start& start) {
  const Share<W> used = watch.Use();
  if (used == nullptr) return nullptr;
  return StartCall(queue, [&](const Call& call) { start(*used, call); });
}

template <typename W>
PyObject* StartOpen(Handle<W>& watch, Queue queue) {
  return StartWatchCall(watch, queue, [](W& w, const Call& call) {
    w.Open(call.cancellation, call.StatusSlot());
  });
}

template <typename W, typename Event>
PyObject* StartNext(Handle<W>& watch, Queue queue) {
  return StartWatchCall(watch, queue, [](W& w, const Call& call) {
    w.Next(call.cancellation, call.Slot<std::vector<Event>>(WriteEvents<Event>));
  });
}

template <typename W>
PyObject* Revision(Handle<W>& watch) {
  const Share<W> used = watch.Use();
  if (used == nullptr) return nullptr;
  return Write(Forked() ? int64_t{0} : used->revision());
}

template <typename W>
PyObject* Suspend(Handle<W>& watch) {
  const Share<W> used = watch.Use();
  if (used == nullptr) return nullptr;
  if (!Forked()) used->Suspend();
  return WriteNone();
}

// A call in flight has a share, and ends.
template <typename W>
PyObject* Close(Handle<W>& watch) {
  const Share<W> last = watch.Take();
  if (last != nullptr) {
    const GilRelease release;
    last->Close();
  }
  return WriteNone();
}

PyObject* Info(Handle<GroupWatcher>& watch) {
  const Share<GroupWatcher> used = watch.Use();
  if (used == nullptr) return nullptr;
  const std::optional<client::GroupInfo> info = used->info();
  return info.has_value() ? WriteGroupInfo(*info) : WriteNone();
}

// The connection for watches of groups at a coordinator: all of them share one, with its thread.
// Used with the interpreter's lock held.
std::weak_ptr<client::Connection>& ConnectionOf(const client::ConnectionOptions& options) {
  using Key = std::pair<std::string, std::string>;
  static auto* const connections = new std::map<Key, std::weak_ptr<client::Connection>>();
  return (*connections)[{options.address, options.tenant}];
}

PyObject* WatchGroup(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  client::ConnectionOptions connection;
  std::string group;
  std::optional<absl::Duration> timeout;
  client::WatcherOptions watch;
  if (!options.Get("address", &connection.address) || !options.Get("tenant", &connection.tenant) ||
      !options.Get("group", &group) || !options.Get("timeout", &timeout) ||
      !options.Get("reconnect_timeout", &watch.reconnect_timeout) || !options.Finish()) {
    return nullptr;
  }
  const auto end = [](const absl::Status& /*reason*/) {};  // it does not wait
  Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  std::shared_ptr<client::Connection> shared = ConnectionOf(connection).lock();
  if (shared == nullptr) {
    absl::StatusOr<std::shared_ptr<client::Connection>> made =
        blocking.Run([&] { return client::Connection::Create(connection); });
    if (!made.ok()) return blocking.Raise(made.status());
    shared = *std::move(made);
    ConnectionOf(connection) = shared;
  }
  std::shared_ptr<GroupWatcher> watcher =
      client::AdminClient::Create(std::move(shared))
          ->NewGroupWatcher(group, WatchOptions(0, timeout, watch.reconnect_timeout));
  return WriteInstance(std::make_unique<Handle<GroupWatcher>>(std::move(watcher)));
}

PyMethodDef key_methods[] = {
    Method<&Open<KeyWatcher>>("open"),
    Method<&Next<KeyWatcher>>("next", {"to"}),
    Method<&StartOpen<KeyWatcher>>("start_open", {"completions"}),
    Method<&StartNext<KeyWatcher, KeyEvent>>("start_next", {"completions"}),
    MethodAlsoInChild<&Revision<KeyWatcher>>("revision"),
    MethodAlsoInChild<&Suspend<KeyWatcher>>("suspend"),
    MethodAlsoInChild<&Close<KeyWatcher>>("close"),
    {}};

PyMethodDef group_methods[] = {
    Method<&Open<GroupWatcher>>("open"),
    Method<&Next<GroupWatcher>>("next", {"to"}),
    Method<&StartOpen<GroupWatcher>>("start_open", {"completions"}),
    Method<&StartNext<GroupWatcher, GroupEvent>>("start_next", {"completions"}),
    MethodAlsoInChild<&Revision<GroupWatcher>>("revision"),
    MethodAlsoInChild<&Suspend<GroupWatcher>>("suspend"),
    MethodAlsoInChild<&Close<GroupWatcher>>("close"),
    Method<&Info>("info"),
    {}};

PyMethodDef functions[] = {Function<&WatchGroup>("watch_group"), {}};

}  // namespace

PyObject* WriteKeyWatch(std::unique_ptr<KeyWatcher> watcher) {
  return WriteInstance(
      std::make_unique<Handle<KeyWatcher>>(std::shared_ptr<KeyWatcher>(std::move(watcher))));
}

bool AddWatch(PyObject* module) {
  const Object key_type(MakeType<Handle<KeyWatcher>>("cohort._core.KeyWatch", key_methods));
  const Object group_type(MakeType<Handle<GroupWatcher>>("cohort._core.GroupWatch", group_methods));
  return key_type && group_type &&
         PyModule_AddObjectRef(module, "KeyWatch", key_type.get()) == 0 &&
         PyModule_AddObjectRef(module, "GroupWatch", group_type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
