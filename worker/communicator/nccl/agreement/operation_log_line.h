// The description of an operation in which all ranks must agree, as it travels.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_OPERATION_LOG_LINE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_OPERATION_LOG_LINE_H_

#include <cstdint>
#include <string>

#include "base/collective/collective.h"

namespace cohort::worker {

// Compared byte by byte, so padding between the fields is 0. Read from others' memory, it may be
// anything.
struct OperationLogLine {
  CollectiveKey key;
  // Which of the tensors that all ranks have lie in registered memory. From bit kOffsetShift on: a
  // digest of their offsets in symmetric windows, 0 if they are in no window.
  uint32_t registered = 0;
  // 1: on a stream, without a host barrier before it. At a barrier, a rank waits for all.
  uint32_t on_stream = 0;
};
static_assert(sizeof(OperationLogLine) == 32);
constexpr uint32_t kInputRegistered = 1;
constexpr uint32_t kOutputRegistered = 2;
constexpr int kOffsetShift = 2;

OperationLogLine LineOf(const FlatCall& call);
// A call that this rank could not make, because of a wrong argument.
OperationLogLine LineOfRefusal();
bool IsRefusal(const OperationLogLine& line);
// A replay of `calls` captured calls; `digest` is a digest of them.
OperationLogLine LineOfReplay(int calls, uint32_t digest);
bool Same(const OperationLogLine& a, const OperationLogLine& b);
// Such as: all_reduce of 10 f32 by sum on a stream.
std::string Describe(const OperationLogLine& line);

// A digest of `number` after everything that `digest` covers; the same in every process.
uint64_t Mixed(uint64_t digest, uint64_t number);
// A digest of `line` after everything that `chain` covers.
uint64_t Chained(uint64_t chain, const OperationLogLine& line);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_OPERATION_LOG_LINE_H_
