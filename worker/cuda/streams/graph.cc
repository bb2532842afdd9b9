#include "worker/cuda/streams/graph.h"

#include "base/status_macros.h"
#include "worker/cuda/device/cuda_error.h"

namespace cohort::worker::cuda {

absl::StatusOr<Graph> Graph::Capture(cudaStream_t stream, absl::FunctionRef<absl::Status()> body) {
  // Relaxed: calls of other threads do not affect the capture. This thread may allocate memory,
  // which does not become part of the graph.
  COHORT_RETURN_IF_ERROR(
      COHORT_CUDA_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed)));
  const absl::Status captured = body();
  cudaGraph_t graph = nullptr;
  const absl::Status ended = COHORT_CUDA_CALL(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  absl::Status status = captured.ok() ? ended : captured;
  if (status.ok()) status = COHORT_CUDA_CALL(cudaGraphInstantiate(&executable, graph, 0));
  if (graph != nullptr) {
    LogIfError("a CUDA graph is not destroyed", COHORT_CUDA_CALL(cudaGraphDestroy(graph)));
  }
  COHORT_RETURN_IF_ERROR(status);
  return Graph(executable);
}

Graph::~Graph() {
  if (executable_ == nullptr) return;
  LogIfError("a CUDA graph is not destroyed", COHORT_CUDA_CALL(cudaGraphExecDestroy(executable_)));
}

absl::Status Graph::Launch(cudaStream_t stream) const {
  return COHORT_CUDA_CALL(cudaGraphLaunch(executable_, stream));
}

}  // namespace cohort::worker::cuda
