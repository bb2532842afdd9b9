// A stream's work, captured once, for many launches.
#ifndef COHORT_WORKER_CUDA_STREAMS_GRAPH_H_
#define COHORT_WORKER_CUDA_STREAMS_GRAPH_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Movable; the destructor does not wait, and launched work still completes.
class Graph {
 public:
  // Captures the work that `body` enqueues on `stream` from this thread; it does not run. After an
  // error no graph is left. Errors: those of `body` and of CUDA (such as work that cannot be
  // captured).
  static absl::StatusOr<Graph> Capture(cudaStream_t stream, absl::FunctionRef<absl::Status()> body);

  Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~Graph();

  // Enqueues all of the work. Launches of one graph run one after the other.
  absl::Status Launch(cudaStream_t stream) const;

 private:
  explicit Graph(cudaGraphExec_t executable) : executable_(executable) {}

  cudaGraphExec_t executable_;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAMS_GRAPH_H_
