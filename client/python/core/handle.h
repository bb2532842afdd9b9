// An object of the library that Python may close while other threads of Python still call it.
#ifndef COHORT_CLIENT_PYTHON_CORE_HANDLE_H_
#define COHORT_CLIENT_PYTHON_CORE_HANDLE_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "client/python/core/blocking.h"
#include "client/python/core/errors.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// Used with the interpreter's lock held.
template <typename T>
class Handle {
 public:
  explicit Handle(std::shared_ptr<T> value) : value_(std::move(value)) {}

  // A share for one call; null with an exception if it is closed.
  std::shared_ptr<T> Use() const {
    if (value_ == nullptr)
      Raise(absl::FailedPreconditionError("close() was called on this object"));
    return value_;
  }
  // Closes it, and returns the object; null if it is closed already. See Forked.
  std::shared_ptr<T> Take() {
    if (Forked()) new std::shared_ptr<T>(std::move(value_));
    return std::move(value_);
  }
  // Closes it and drops the object, whose destructor runs without the interpreter's lock.
  void Close() {
    std::shared_ptr<T> last = Take();
    const GilRelease release;
    last.reset();
  }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_HANDLE_H_
