// An object of the library that Python may close while other threads of Python still call it.
#ifndef COHORT_CLIENT_PYTHON_CORE_HANDLE_H_
#define COHORT_CLIENT_PYTHON_CORE_HANDLE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/python/core/blocking.h"
#include "client/python/core/errors.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// A share of the object for one call. The last one is dropped without the interpreter's lock, because
// destructors may wait: a group leaves. Made and destroyed with the interpreter's lock.
template <typename T>
class Share {
 public:
  Share() = default;
  explicit Share(std::shared_ptr<T> value) : value_(std::move(value)) {}
  Share(Share&&) = default;
  Share& operator=(Share&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Share() {
    if (value_.use_count() != 1) return;
    const GilRelease release;
    value_.reset();
  }

  const std::shared_ptr<T>& get() const { return value_; }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }
  // Null: an exception is set.
  friend bool operator==(const Share& share, std::nullptr_t) { return share.value_ == nullptr; }
  friend bool operator!=(const Share& share, std::nullptr_t) { return share.value_ != nullptr; }

 private:
  std::shared_ptr<T> value_;
};

// Used with the interpreter's lock held.
template <typename T>
class Handle {
 public:
  explicit Handle(std::shared_ptr<T> value) : value_(std::move(value)) {}

  // A share for one call; null with an exception if it is closed.
  Share<T> Use() const {
    if (value_ == nullptr)
      Raise(absl::FailedPreconditionError("close() was called on this object"));
    return Share<T>(value_);
  }
  // Closes it, and returns the object; null if it is closed already. See Forked.
  Share<T> Take() {
    if (Forked()) new std::shared_ptr<T>(std::move(value_));
    return Share<T>(std::exchange(value_, nullptr));
  }
  // Closes it: its calls on other threads end, and then the object is dropped.
  void Close() {
    const Share<T> last = Take();
    if (last == nullptr) return;
    Blocking::EndCallsOf(&*last, absl::CancelledError("close() was called on this object"),
                         kEndOfCalls);
  }

  // Calls end much sooner.
  static constexpr absl::Duration kEndOfCalls = absl::Seconds(5);

 private:
  std::shared_ptr<T> value_;
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_HANDLE_H_
