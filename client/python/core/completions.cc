#include "client/python/core/completions.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/python/core/convert.h"
#include "client/python/core/method.h"

namespace cohort::python {

std::shared_ptr<Completions> Completions::Create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0) return std::make_shared<Completions>(fd);
  Raise(absl::ResourceExhaustedError(absl::StrCat("no descriptor: ", strerror(errno))));
  return nullptr;
}

Completions::~Completions() { close(fd_); }

std::function<void(absl::Status)> Completions::Call::StatusSlot() const {
  return [completions = completions, id = id](absl::Status status) {
    completions->Push(id, [status = std::move(status)]() -> PyObject* {
      return status.ok() ? WriteNone() : Raise(status);
    });
  };
}

Completions::Call Completions::Begin() {
  auto cancellation = std::make_shared<client::Cancellation>();
  MutexLock lock(&mutex_);
  running_[++last_id_] = cancellation;
  return Call{shared_from_this(), last_id_, std::move(cancellation)};
}

void Completions::Push(int64_t id, std::function<PyObject*()> write) {
  MutexLock lock(&mutex_);
  running_.erase(id);
  if (closed_) return;
  ended_.push_back(Ended{id, std::move(write)});
  if (ended_.size() == 1) eventfd_write(fd_, 1);
}

PyObject* Completions::Take() {
  std::vector<Ended> ended;
  {
    MutexLock lock(&mutex_);
    eventfd_t count;
    eventfd_read(fd_, &count);
    ended.swap(ended_);
  }
  return WriteList(ended, [](const Ended& call) -> PyObject* {
    Object result(call.write());
    const bool succeeded = static_cast<bool>(result);
    if (!succeeded) result = TakeRaised();
    return Py_BuildValue("(LOO)", static_cast<long long>(call.id),  // NOLINT: Python's type
                         succeeded ? Py_True : Py_False, result.get());
  });
}

void Completions::Cancel(int64_t id, const std::string& reason) {
  std::shared_ptr<client::Cancellation> cancellation;
  {
    MutexLock lock(&mutex_);
    const auto it = running_.find(id);
    if (it == running_.end()) return;
    cancellation = it->second;
  }
  cancellation->Cancel(absl::CancelledError(reason));
}

void Completions::Close() {
  std::vector<Ended> dropped;
  MutexLock lock(&mutex_);
  closed_ = true;
  dropped.swap(ended_);
}

namespace {

using Handle = std::shared_ptr<Completions>;

PyObject* Create(PyObject* /*module*/, PyObject* /*unused*/) {
  Handle made = Completions::Create();
  return made == nullptr ? nullptr : WriteInstance(std::make_unique<Handle>(std::move(made)));
}
PyObject* Fileno(Handle& completions) { return Write(completions->fd()); }
PyObject* Take(Handle& completions) { return completions->Take(); }
PyObject* Cancel(Handle& completions, int64_t id, std::string reason) {
  completions->Cancel(id, reason);
  return WriteNone();
}
PyObject* Close(Handle& completions) {
  completions->Close();
  return WriteNone();
}

PyMethodDef methods[] = {Method<&Fileno>("fileno"), Method<&Take>("take"),
                         Method<&Cancel>("cancel", {"call", "reason"}), MethodAlsoInChild<&Close>("close"),
                         {}};
PyMethodDef functions[] = {{"create_completions", Create, METH_NOARGS, nullptr}, {}};

}  // namespace

bool Read(PyObject* from, const char* name, std::shared_ptr<Completions>* to) {
  if (Py_TYPE(from) != TypeOf<Handle>()) {
    PyErr_Format(PyExc_TypeError, "%s: expected Completions, got %S", name, Py_TYPE(from));
    return false;
  }
  *to = *reinterpret_cast<Instance<Handle>*>(from)->value;
  return true;
}

bool AddCompletions(PyObject* module) {
  const Object type(MakeType<Handle>("cohort._core.Completions", methods));
  return type && PyModule_AddObjectRef(module, "Completions", type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
