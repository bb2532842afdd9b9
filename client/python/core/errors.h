// Errors of the library as Python exceptions.
#ifndef COHORT_CLIENT_PYTHON_CORE_ERRORS_H_
#define COHORT_CLIENT_PYTHON_CORE_ERRORS_H_

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

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_ERRORS_H_
