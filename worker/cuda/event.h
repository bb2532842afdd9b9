// A point in a stream's work.
#ifndef COHORT_WORKER_CUDA_EVENT_H_
#define COHORT_WORKER_CUDA_EVENT_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Movable; destroyed with its holder, which does not wait: what waits for it goes on waiting. A
// moved-from one can be destroyed or assigned to. Record by one thread at a time; the rest by any.
class Event {
 public:
  // Those that keep the time cost more.
  enum class Timing { kOff, kOn };

  // For streams of `device`. Errors: as DescribeDevice, RESOURCE_EXHAUSTED.
  static absl::StatusOr<Event> Create(int device, Timing timing = Timing::kOff);

  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)), device_(other.device_) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Event();

  // Is what has been enqueued on `stream`, which is of the event's device, so far; no more what it
  // was before. Errors: INVALID_ARGUMENT (of another device).
  absl::Status Record(cudaStream_t stream);
  // Whether that is done. An event never recorded is. Errors: INTERNAL (the device failed).
  absl::StatusOr<bool> Query() const;
  // Errors: DEADLINE_EXCEEDED (not done by then; steady time), and those of Query.
  absl::Status Wait(Instant deadline) const;
  // All that is enqueued on `stream` from now on, which may be of another device, is done after it.
  // Does not wait itself.
  absl::Status HoldBack(cudaStream_t stream) const;

  // Both with timing and done. Errors: INVALID_ARGUMENT (without timing, or never recorded),
  // UNAVAILABLE (not done yet).
  static absl::StatusOr<absl::Duration> Elapsed(const Event& start, const Event& end);

  cudaEvent_t get() const { return event_; }
  int device() const { return device_; }

 private:
  Event(cudaEvent_t event, int device) : event_(event), device_(device) {}

  cudaEvent_t event_;
  int device_;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_EVENT_H_
