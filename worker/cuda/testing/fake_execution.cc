// Streams, events, host functions and graphs of the fake runtime.
#include <utility>

#include "absl/time/time.h"
#include "worker/cuda/testing/fake_state.h"

namespace cohort::worker::cuda::fake {
namespace {

std::shared_ptr<Event> FindEvent(cudaEvent_t event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex) {
  const auto found = state().events.find(event);
  return found == state().events.end() ? nullptr : found->second;
}

// A query of a stream during its capture invalidates the capture.
cudaError_t Ask(const std::shared_ptr<Stream>& stream)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state().mutex) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture == nullptr) return cudaSuccess;
  stream->capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return Call(__func__, [&] {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = NewHandle<cudaStream_t>();
    MutexLock lock(&state().mutex);
    state().streams.emplace(*stream, Stream::Start(CurrentDevice()));
    return cudaSuccess;
  });
}

// Does not wait: enqueued work still completes.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const auto found = state().streams.find(stream);
    if (found == state().streams.end()) return cudaErrorInvalidResourceHandle;
    if (found->second->capture != nullptr) found->second->capture->invalid = true;
    found->second->Close();
    state().closed_streams.push_back(std::move(found->second));
    state().streams.erase(found);
    // Removes streams that have no more work.
    for (auto it = state().closed_streams.begin(); it != state().closed_streams.end();) {
      it = (*it)->ended() ? state().closed_streams.erase(it) : it + 1;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Stream> found = FindStream(stream);
    const cudaError_t refused = Ask(found);
    if (refused != cudaSuccess) return refused;
    return found->idle() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Call(__func__, [&] {
    std::shared_ptr<Stream> found;
    {
      MutexLock lock(&state().mutex);
      found = FindStream(stream);
      const cudaError_t refused = Ask(found);
      if (refused != cudaSuccess) return refused;
    }
    found->Finish();
    MutexLock lock(&state().mutex);
    return state().sticky;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *device = found->device();
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return Call(__func__, [&] {
    if (function == nullptr) return cudaErrorInvalidValue;
    return Enqueue(stream, [function, argument] {
      if (state().dropping) return;
      InHostFunction() = true;
      function(argument);
      InHostFunction() = false;
    });
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return Call(__func__, [&] {
    if ((flags & cudaEventInterprocess) != 0) return cudaErrorNotSupported;
    *event = NewHandle<cudaEvent_t>();
    auto made = std::make_shared<Event>();
    made->device = CurrentDevice();
    made->timed = (flags & cudaEventDisableTiming) == 0;
    MutexLock lock(&state().mutex);
    state().events.emplace(*event, std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    return state().events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Event> recorded = FindEvent(event);
    const std::shared_ptr<Stream> on = FindStream(stream);
    if (recorded == nullptr || on == nullptr) return cudaErrorInvalidResourceHandle;
    if (recorded->device != on->device()) return cudaErrorInvalidResourceHandle;
    recorded->capture = on->capture;
    recorded->mark = nullptr;
    if (on->capture != nullptr) {
      return on->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    }
    recorded->mark = std::make_shared<Mark>();
    on->Push(recorded->mark);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Event> found = FindEvent(event);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture != nullptr) {
      found->capture->invalid = true;
      return cudaErrorCapturedEvent;
    }
    return found->mark == nullptr || found->mark->reached() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Event> events[] = {FindEvent(start), FindEvent(end)};
    for (const std::shared_ptr<Event>& event : events) {
      if (event == nullptr || !event->timed || event->mark == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    for (const std::shared_ptr<Event>& event : events) {
      if (!event->mark->reached()) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(
        absl::ToDoubleMilliseconds(events[1]->mark->at() - events[0]->mark->at()));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Event> awaited = FindEvent(event);
    const std::shared_ptr<Stream> on = FindStream(stream);
    if (awaited == nullptr || on == nullptr) return cudaErrorInvalidResourceHandle;
    if (awaited->capture != nullptr) {
      // The awaiting stream joins the capture of the event's stream.
      if (on->capture != nullptr && on->capture != awaited->capture) {
        return cudaErrorStreamCaptureMerge;
      }
      on->capture = awaited->capture;
      return cudaSuccess;
    }
    if (on->capture != nullptr) return cudaErrorStreamCaptureIsolation;
    if (awaited->mark == nullptr) return cudaSuccess;
    on->Push([mark = awaited->mark] { mark->Await(); });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return Call(__func__, [&] {
    if (stream == nullptr || stream == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->capture != nullptr) return cudaErrorIllegalState;
    found->capture = std::make_shared<Capture>();
    found->capture->origin = stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *status = found->capture == nullptr ? cudaStreamCaptureStatusNone
              : found->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Call(__func__, [&] {
    *graph = nullptr;
    MutexLock lock(&state().mutex);
    const std::shared_ptr<Stream> found = FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Capture> capture = found->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
    // Streams that joined the capture leave it, too.
    for (const auto& [handle, other] : state().streams) {
      if (other->capture == capture) other->capture = nullptr;
    }
    found->capture = nullptr;
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    *graph = NewHandle<cudaGraph_t>();
    state().graphs.emplace(*graph,
                           std::make_shared<const std::vector<Work>>(std::move(capture->work)));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {  // NOLINT: CUDA's type.
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    const auto found = state().graphs.find(graph);
    if (found == state().graphs.end()) return cudaErrorInvalidValue;
    *executable = NewHandle<cudaGraphExec_t>();
    state().executables.emplace(*executable, found->second);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Call(__func__, [&] {
    std::shared_ptr<const std::vector<Work>> work;
    {
      MutexLock lock(&state().mutex);
      const auto found = state().executables.find(executable);
      if (found == state().executables.end()) return cudaErrorInvalidValue;
      work = found->second;
    }
    return Enqueue(stream, [work] {
      for (const Work& piece : *work) piece();
    });
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    return state().graphs.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    return state().executables.erase(executable) == 1 ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // extern "C"

}  // namespace cohort::worker::cuda::fake
