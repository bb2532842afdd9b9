// Errors of the library as Python exceptions.
#ifndef COHORT_CLIENT_PYTHON_CORE_ERRORS_H_
#define COHORT_CLIENT_PYTHON_CORE_ERRORS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client/python/core/blocking.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// The function that makes an exception: cohort.errors.make(code, message, details), where `code` is
// the number of the status code and `details` a dict. Set once, when the package is imported.
void SetErrorFactory(Object factory);

// Sets the exception of `status`, which is an error, and returns null. After BeginExit, it is
// SystemExit on other threads than the caller's.
PyObject* Raise(const absl::Status& status);
// The process ends, and its objects close. Only daemon threads are left, whose calls fail because of
// that. SystemExit ends them without a word, and lets them release their locks.
void BeginExit();
// Returns the exception itself, which a caller raises later; null with another exception.
PyObject* MakeError(const absl::Status& status);

// Clears the exception that is set, and returns it.
Object TakeRaised();

// "KeyboardInterrupt" or "SystemExit: 3".
std::string DescribeException(PyObject* exception);

// An exception that is no Exception, such as KeyboardInterrupt, which code of Python raises while a
// method reads its arguments. The other ranks get a status from that method, so it first tells them,
// and raises the exception when it ends.
//
//   KeptInterrupt kept;                    // around each method of the module
//   return kept.Return(method());
//
// Used with the interpreter's lock. Methods may be within each other.
class KeptInterrupt {
 public:
  // A forked child leaves the list as it is: the stacks of its parent's threads are gone.
  KeptInterrupt() : thread_(PyThreadState_Get()), older_(newest_) {
    if (Forked()) return;
    if (older_ != nullptr) older_->newer_ = this;
    newest_ = this;
  }
  ~KeptInterrupt() {
    Py_XDECREF(kept_);
    if (Forked()) return;
    (newer_ == nullptr ? newest_ : newer_->older_) = older_;
    if (older_ != nullptr) older_->newer_ = newer_;
  }
  KeptInterrupt(const KeptInterrupt&) = delete;
  KeptInterrupt& operator=(const KeptInterrupt&) = delete;

  // Keeps the exception for the innermost method of this thread. The first one counts.
  static void Keep(Object exception);
  // Returns the method's result. If an exception was kept, sets it in place of the result, or of the
  // exception that is set, and returns null.
  PyObject* Return(PyObject* result) { return kept_ == nullptr ? result : Replace(result); }

 private:
  PyObject* Replace(PyObject* result);

  // All methods that run, also those of threads that wait without the lock.
  static inline KeptInterrupt* newest_ = nullptr;
  PyThreadState* const thread_;
  KeptInterrupt* older_;
  KeptInterrupt* newer_ = nullptr;
  PyObject* kept_ = nullptr;  // owned
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_ERRORS_H_
