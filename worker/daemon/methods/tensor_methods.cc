// Methods that create, free, write and read the worker's tensors.
#include <algorithm>

#include "base/memory/no_memory.h"
#include "base/status_macros.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/streams/read_stream.h"
#include "worker/daemon/methods/streams/write_stream.h"
#include "worker/daemon/methods/worker_service.h"
#include "worker/daemon/tensors/tensor_layout.h"

namespace cohort::worker {
namespace {

// The most bytes in one message of ReadTensor.
constexpr int64_t kPartBytes = int64_t{1} << 20;

}  // namespace

grpc::Status WorkerService::CreateTensor(grpc::ServerContext* context,
                                         const v1::CreateTensorRequest* request,
                                         v1::CreateTensorResponse* response) {
  const auto create = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const std::shared_ptr<Session> session,
        sessions_.Find(request->session(), access_.CallerOf("CreateTensor", *context)));
    COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(request->layout()));
    COHORT_ASSIGN_OR_RETURN(TensorMemory memory, session->Allocate(layout.bytes));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<shm::Heap> heap, session->heap());
    response->set_offset(static_cast<uint64_t>(memory.data - heap->segment().data()));
    COHORT_ASSIGN_OR_RETURN(const uint64_t tensor, session->tensors().Add(std::move(memory)));
    response->set_tensor(tensor);
    return absl::OkStatus();
  };
  return Answer(context, WithMemory("cohort.v1.WorkerService/CreateTensor", "a request",
                                    static_cast<int64_t>(request->ByteSizeLong()), create));
}

grpc::Status WorkerService::FreeTensor(grpc::ServerContext* context,
                                       const v1::FreeTensorRequest* request,
                                       v1::FreeTensorResponse*) {
  const auto free = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const std::shared_ptr<Session> session,
        sessions_.Find(request->session(), access_.CallerOf("FreeTensor", *context)));
    return session->tensors().Free(request->tensor());
  };
  return Answer(context, free());
}

grpc::ServerReadReactor<v1::WriteTensorRequest>* WorkerService::WriteTensor(
    grpc::CallbackServerContext* context, v1::WriteTensorResponse* response) {
  return WriteStream::Start(context, response, access_.CallerOf("WriteTensor", *context), sessions_,
                            gate_, streams_);
}

grpc::ServerWriteReactor<v1::ReadTensorResponse>* WorkerService::ReadTensor(
    grpc::CallbackServerContext* context, const v1::ReadTensorRequest* request) {
  // Below the limits on messages of any reader, and of this worker.
  const int64_t part_bytes = std::min(kPartBytes, options_.max_message_bytes / 2);
  return ReadStream::Start(context, request, part_bytes, access_.CallerOf("ReadTensor", *context),
                           sessions_, gate_, streams_);
}

}  // namespace cohort::worker
