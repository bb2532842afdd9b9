// What every backend asks of the arguments of a call, before anything is moved.
#ifndef COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_
#define COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/data_type.h"
#include "base/reduction.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// The values travel between processes: they do not change.
enum class Verb : uint8_t {
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kAllToAll = 6,
  kGather = 7,
  kScatter = 8,
  kBarrier = 9,
};

// "all_reduce", ...; of a number that is none, "verb 42".
std::string NameOf(Verb verb);

// What all ranks must agree on.
struct Operation {
  Verb verb = Verb::kBarrier;
  int64_t count = 0;
  DataType type = DataType::kU8;
  Reduction reduction;  // of verbs that reduce
  int root = 0;         // of verbs that have one
  uint32_t tag = 0;     // the communicator's
};

inline Operation MakeOperation(Verb verb, int64_t count, DataType type, uint32_t tag, int root = 0,
                               const Reduction& reduction = {}) {
  Operation operation;
  operation.verb = verb;
  operation.count = count;
  operation.type = type;
  operation.reduction = reduction;
  operation.root = root;
  operation.tag = tag;
  return operation;
}

inline bool Reduces(Verb verb) {
  return verb == Verb::kAllReduce || verb == Verb::kReduce || verb == Verb::kReduceScatter;
}
inline bool HasRoot(Verb verb) {
  return verb == Verb::kReduce || verb == Verb::kBroadcast || verb == Verb::kGather ||
         verb == Verb::kScatter;
}

// Such as: all_reduce of 4096 bf16 by sum; broadcast of 10 f32 from root 3.
std::string Describe(const Operation& operation);

// That the rank reads and writes; 0 where it has no input or output.
int64_t InputBytes(const Operation& operation, int rank, int size);
int64_t OutputBytes(const Operation& operation, int rank, int size);

// `input` and `output` are looked at where this rank has them. Errors: INVALID_ARGUMENT.
absl::Status CheckArguments(const Operation& operation, int rank, int size, const void* input,
                            const void* output);

// Such as: send of 4096 bf16 to rank 3; receive of 10 f32 from rank 0.
std::string Describe(const Transfer& transfer);

// Of each. Errors: INVALID_ARGUMENT.
absl::Status CheckTransfers(absl::Span<const Transfer> transfers, int rank, int size);
// And that each is small enough for a note.
absl::Status CheckNotes(absl::Span<const Transfer> notes, int rank, int size);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_
