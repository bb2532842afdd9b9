// A stream's work, captured once, to be launched again and again.
#ifndef COHORT_WORKER_CUDA_GRAPH_H_
#define COHORT_WORKER_CUDA_GRAPH_H_

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Movable; destroyed with its holder, which does not wait: what was launched is still done.
class Graph {
 public:
  // What `body` enqueues on `stream` by this thread, which is not done. Errors: body's, and those
  // of CUDA (such as what cannot be captured); then nothing is left of it.
  static absl::StatusOr<Graph> Capture(cudaStream_t stream, absl::FunctionRef<absl::Status()> body);

  Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~Graph();

  // Enqueues all of it. Launches of one graph are done one after the other.
  absl::Status Launch(cudaStream_t stream) const;

 private:
  explicit Graph(cudaGraphExec_t executable) : executable_(executable) {}

  cudaGraphExec_t executable_;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_GRAPH_H_
