// Tensors that lie here: made, freed, filled and read.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/service/answer.h"
#include "worker/service/tensor_layout.h"
#include "worker/service/worker_service.h"

namespace cohort::worker {
namespace {

// Of one message of ReadTensor.
constexpr int64_t kPartBytes = int64_t{1} << 20;

absl::Status CheckRange(const TensorMemory& memory, uint64_t offset, uint64_t size) {
  if (!memory.device.is_host()) {
    return absl::InvalidArgumentError(absl::StrCat("the tensor lies on ", memory.device.ToString(),
                                                   ": its client reads and writes it there"));
  }
  const auto bytes = static_cast<uint64_t>(memory.bytes);
  if (offset <= bytes && size <= bytes - offset) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(size, " bytes from ", offset, " on; the tensor has ", bytes));
}

}  // namespace

grpc::Status WorkerService::CreateTensor(grpc::ServerContext* context,
                                         const v1::CreateTensorRequest* request,
                                         v1::CreateTensorResponse* response) {
  const auto create = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                            sessions_.Find(request->session()));
    COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(request->layout()));
    COHORT_ASSIGN_OR_RETURN(TensorMemory memory, session->Allocate(layout.bytes));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<shm::Heap> heap, session->heap());
    response->set_offset(static_cast<uint64_t>(memory.data - heap->segment().data()));
    COHORT_ASSIGN_OR_RETURN(const uint64_t tensor, session->tensors().Add(std::move(memory)));
    response->set_tensor(tensor);
    return absl::OkStatus();
  };
  return Answer(context, create());
}

grpc::Status WorkerService::FreeTensor(grpc::ServerContext* context,
                                       const v1::FreeTensorRequest* request,
                                       v1::FreeTensorResponse*) {
  const auto free = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                            sessions_.Find(request->session()));
    COHORT_RETURN_IF_ERROR(session->tensors().Free(request->tensor()));
    for (const auto& [number, entry] : session->groups()) {
      if (entry->streams() != nullptr) entry->streams()->Sweep();
    }
    return absl::OkStatus();
  };
  return Answer(context, free());
}

grpc::Status WorkerService::WriteTensor(grpc::ServerContext* context,
                                        grpc::ServerReader<v1::WriteTensorRequest>* reader,
                                        v1::WriteTensorResponse* response) {
  const auto write = [&]() -> absl::Status {
    // It waits for parts as long as the client likes.
    COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter());
    v1::WriteTensorRequest part;
    if (!reader->Read(&part)) return absl::InvalidArgumentError("nothing was written");
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, sessions_.Find(part.session()));
    COHORT_ASSIGN_OR_RETURN(const TensorMemory memory, session->tensors().Find(part.tensor()));
    uint64_t at = part.offset();
    uint64_t written = 0;
    do {
      COHORT_RETURN_IF_ERROR(CheckRange(memory, at, part.bytes().size()));
      std::memcpy(memory.data + at, part.bytes().data(), part.bytes().size());
      at += part.bytes().size();
      written += part.bytes().size();
    } while (reader->Read(&part));
    response->set_written(written);
    return absl::OkStatus();
  };
  return Answer(context, write());
}

grpc::Status WorkerService::ReadTensor(grpc::ServerContext* context,
                                       const v1::ReadTensorRequest* request,
                                       grpc::ServerWriter<v1::ReadTensorResponse>* writer) {
  const auto read = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                            sessions_.Find(request->session()));
    COHORT_ASSIGN_OR_RETURN(const TensorMemory memory, session->tensors().Find(request->tensor()));
    COHORT_RETURN_IF_ERROR(CheckRange(memory, request->offset(), request->size()));
    COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter());
    // Below what any reader's messages may have, and the worker's own too.
    const int64_t part_bytes = std::min(kPartBytes, options_.max_message_bytes / 2);
    const char* at = memory.data + request->offset();
    auto left = static_cast<int64_t>(request->size());
    v1::ReadTensorResponse part;
    while (left > 0) {
      const int64_t bytes = std::min(left, part_bytes);
      part.set_bytes(at, static_cast<size_t>(bytes));
      if (!writer->Write(part)) return absl::CancelledError("the reader is gone");
      at += bytes;
      left -= bytes;
    }
    return absl::OkStatus();
  };
  return Answer(context, read());
}

}  // namespace cohort::worker
