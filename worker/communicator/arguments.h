// What every backend asks of the arguments of a call, before anything is moved.
#ifndef COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_
#define COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/data_type.h"
#include "base/reduction.h"

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
};

bool Reduces(Verb verb);
bool HasRoot(Verb verb);

// Such as: all_reduce of 4096 bf16 by sum; broadcast of 10 f32 from root 3.
std::string Describe(const Operation& operation);

// `input` and `output` are looked at where this rank has them. Errors: INVALID_ARGUMENT.
absl::Status CheckArguments(const Operation& operation, int rank, int size, const void* input,
                            const void* output);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_
