// Checks that every backend makes before it moves anything.
#ifndef COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_
#define COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/collective/collective.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// The bytes that the rank reads or writes; 0 where it has no input or output.
int64_t InputBytes(const FlatCall& call, int rank, int size);
int64_t OutputBytes(const FlatCall& call, int rank, int size);

// Checks the arguments of Communicator::Run on this rank. Errors: INVALID_ARGUMENT, as
// ArgumentError makes it.
absl::Status CheckArguments(const FlatCall& call, int rank, int size, const void* input,
                            const void* output);

// Such as: send of 4096 bf16 to rank 3; receive of 10 f32 from rank 0.
std::string Describe(const Transfer& transfer);

// Checks the transfers of Communicator::Exchange on this rank. Errors: INVALID_ARGUMENT (names the
// transfer).
absl::Status CheckTransfers(absl::Span<const Transfer> transfers, int rank, int size,
                            MessageChannel channel = MessageChannel::kData);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_ARGUMENTS_H_
