// The results of asynchronous calls, on their way to an event loop of Python. No thread waits for
// them: the loop watches a descriptor.
#ifndef COHORT_CLIENT_PYTHON_CORE_COMPLETIONS_H_
#define COHORT_CLIENT_PYTHON_CORE_COMPLETIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/threads/mutex.h"
#include "client/python/core/errors.h"
#include "client/python/core/python_api.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {

// The calls of one event loop. Thread-safe; methods that return Python's objects need the
// interpreter's lock.
class Completions : public std::enable_shared_from_this<Completions> {
 public:
  // A call that was started, and its end.
  struct Call {
    std::shared_ptr<Completions> completions;
    int64_t id;
    std::shared_ptr<client::Cancellation> cancellation;

    // Returns what the call of the library runs at its end. `write` makes a Python object of the
    // value, and leaves an exception if it returns null.
    template <typename T, typename Write>
    std::function<void(absl::StatusOr<T>)> Slot(Write write) const {
      return [completions = completions, id = id, write](absl::StatusOr<T> result) {
        // The value may not be copyable, but functions are.
        auto kept = std::make_shared<absl::StatusOr<T>>(std::move(result));
        completions->Push(id, [kept, write]() -> PyObject* {
          return kept->ok() ? write(**kept) : Raise(kept->status());
        });
      };
    }
    std::function<void(absl::Status)> StatusSlot() const;
  };

  // Null with an exception if the process has no descriptor left.
  static std::shared_ptr<Completions> Create();
  explicit Completions(int fd) : fd_(fd) {}
  ~Completions();

  Call Begin();
  // Readable while Take has something to return.
  int fd() const { return fd_; }
  // Returns the calls that have ended: a list of (id, whether it succeeded, result or exception).
  PyObject* Take();
  // Ends the call soon, if it has not ended.
  void Cancel(int64_t id, const std::string& reason);
  // The results of calls that still run are dropped.
  void Close();

 private:
  struct Ended {
    int64_t id;
    std::function<PyObject*()> write;
  };

  void Push(int64_t id, std::function<PyObject*()> write);

  const int fd_;
  Mutex mutex_;
  int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<int64_t, std::shared_ptr<client::Cancellation>> running_
      ABSL_GUARDED_BY(mutex_);
  std::vector<Ended> ended_ ABSL_GUARDED_BY(mutex_);
};

// Reads an argument of an asynchronous method.
bool Read(PyObject* from, const char* name, std::shared_ptr<Completions>* to);

// Adds the type to the module. Returns false with an exception.
bool AddCompletions(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_COMPLETIONS_H_
