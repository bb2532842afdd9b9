// A point in a stream's work.
#ifndef COHORT_WORKER_CUDA_STREAMS_EVENT_H_
#define COHORT_WORKER_CUDA_STREAMS_EVENT_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Movable; the destructor does not wait, and streams that wait for the event keep waiting. A
// moved-from event can be destroyed or assigned to. One thread at a time records; other calls may
// come from any thread.
class Event {
 public:
  // Events that keep the time cost more.
  enum class Timing { kOff, kOn };

  // For streams of `device`. Errors: those of DescribeDevice, RESOURCE_EXHAUSTED.
  static absl::StatusOr<Event> Create(int device, Timing timing = Timing::kOff);

  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)), device_(other.device_) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Event();

  // The event now stands for the work enqueued so far on `stream`, and no longer for earlier work.
  // The stream is of the event's device. Errors: INVALID_ARGUMENT (a stream of another device).
  absl::Status Record(cudaStream_t stream);
  // Whether that work is done; true for an event that was never recorded. Errors: INTERNAL (the
  // device failed).
  absl::StatusOr<bool> Query() const;
  // Waits for that work. Errors: DEADLINE_EXCEEDED (not done by then; steady time), and those of
  // Query.
  absl::Status Wait(Instant deadline) const;
  // Work enqueued on `stream` from now on runs after the event. The stream may be of another
  // device. Does not block.
  absl::Status HoldBack(cudaStream_t stream) const;

  // Both events have timing and are done. Errors: INVALID_ARGUMENT (without timing, or never
  // recorded), UNAVAILABLE (not done yet).
  static absl::StatusOr<absl::Duration> Elapsed(const Event& start, const Event& end);

  cudaEvent_t get() const { return event_; }
  int device() const { return device_; }

 private:
  Event(cudaEvent_t event, int device) : event_(event), device_(device) {}

  cudaEvent_t event_;
  int device_;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAMS_EVENT_H_
