// Errors of the library as Python exceptions.
#ifndef COHORT_CLIENT_PYTHON_CORE_ERRORS_H_
#define COHORT_CLIENT_PYTHON_CORE_ERRORS_H_

#include <string>

#include "absl/status/status.h"
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
//   const KeptInterrupt kept;                    // around each method of the module
//   return kept.Return(method());
//
// Used with the interpreter's lock. Methods may be within each other.
class KeptInterrupt {
 public:
  KeptInterrupt();
  ~KeptInterrupt();
  KeptInterrupt(const KeptInterrupt&) = delete;
  KeptInterrupt& operator=(const KeptInterrupt&) = delete;

  // Keeps the exception for the innermost method of this thread. The first one counts.
  static void Keep(Object exception);
  // Returns the method's result. If an exception was kept, sets it in place of the result, or of the
  // exception that is set, and returns null.
  PyObject* Return(PyObject* result) const;

 private:
  PyObject* const outer_;  // that of the method around this one
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_ERRORS_H_
