// How ranks find out, before data moves, that they mean different things, and all hear of it.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROUTING_MOE_AGREEMENT_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROUTING_MOE_AGREEMENT_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fingerprint.h"
#include "base/tensor/tensor.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// "bf16 [*, 64]": a tensor without its number of rows, which differs from rank to rank.
std::string DescribeRows(const Tensor& tensor);

// A description of a rank's call, as a number that ranks compare and as text.
struct Meaning {
  uint32_t fingerprint = 0;               // differs if the text differs
  absl::FunctionRef<std::string()> text;  // called if there is a difference to explain
};

// A fingerprint in 31 bits.
uint32_t FingerprintOf(const Fingerprint& said);
uint32_t FingerprintOf(absl::string_view description);
// Adds everything that DescribeRows tells.
void AddRows(const Tensor& tensor, Fingerprint& fingerprint);

// Returns every rank's `own`, by rank, which is in 0..kMaxOwnNumber, if the meaning of all ranks is
// the same. One exchange. Errors: those of ExplainDifference and Group::ExchangeSizes.
inline constexpr int64_t kMaxOwnNumber = 0xffffffff;
absl::StatusOr<client::Sizes> ExchangeAgreed(client::Group& group, int64_t own,
                                             const Meaning& meaning,
                                             const client::CallDeadline& deadline);

// Called by all ranks after their fingerprints differed: returns the two meanings as text, the same
// on all ranks. Errors: INVALID_ARGUMENT; those of Group::AllGatherObjects.
absl::Status ExplainDifference(client::Group& group, const Meaning& meaning,
                               const client::CallDeadline& deadline);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROUTING_MOE_AGREEMENT_H_
