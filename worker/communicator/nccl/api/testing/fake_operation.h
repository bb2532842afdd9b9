// The operation that one rank requests of the fake NCCL, and its result on all ranks.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_OPERATION_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_OPERATION_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nccl.h"
#include "worker/communicator/nccl/api/testing/fake_arithmetic.h"

namespace cohort::worker {

struct FakeOperation {
  enum class Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kGather,
    kScatter,
    kSend,
    kReceive,
  };

  Kind kind = Kind::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclUint8;
  int peer = 0;  // or the root
  // For operations that reduce. ncclNumOps: PreMulSum, with a scale that is known, or read when it
  // runs.
  ncclRedOp_t op = ncclSum;
  FakeScalar scalar{};
  const void* scalar_memory = nullptr;
  // Comes to no end.
  bool hangs = false;
};

inline bool IsMessage(const FakeOperation& operation) {
  return operation.kind >= FakeOperation::Kind::kSend;
}
bool Reduces(const FakeOperation& operation);
bool HasRoot(const FakeOperation& operation);

// "ncclAllReduce", ...
absl::string_view FunctionOf(FakeOperation::Kind kind);
// Such as: ncclReduce of 10 elements of type 7 by 0 to root 3.
std::string Describe(const FakeOperation& operation);

// NCCL's immediate checks: ncclInvalidArgument, or success.
ncclResult_t CheckFakeOperation(const FakeOperation& operation, int rank, int ranks);

// Whether the ranks' operations are the same collective. Otherwise NCCL hangs, or worse.
bool Agree(const std::vector<const FakeOperation*>& operations);
// Moves the data of all ranks.
void MoveCollective(const std::vector<const FakeOperation*>& operations);
// Whether NCCL would accept the pair as one message.
bool Match(const FakeOperation& send, const FakeOperation& receive);
void MoveMessage(const FakeOperation& send, const FakeOperation& receive);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_OPERATION_H_
