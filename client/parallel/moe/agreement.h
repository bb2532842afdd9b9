// How ranks find out, before data moves, that they mean different things, and all hear of it.
#ifndef COHORT_CLIENT_PARALLEL_MOE_AGREEMENT_H_
#define COHORT_CLIENT_PARALLEL_MOE_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/moe/fingerprint.h"

namespace cohort::parallel {

// What is left of a call's timeout for each of the verbs that it is made of.
class TimeLeft {
 public:
  explicit TimeLeft(const client::CallOptions& call);
  client::CallOptions Options() const;

 private:
  client::CallOptions call_;
  std::optional<Instant> deadline_;
};

// In place of a verb of all ranks: tells them why this one cannot take part. Returns what it and
// all others get.
absl::Status RefuseAs(client::Group& group, const absl::Status& why, const TimeLeft& time);

// "bf16 [*, 64]": a tensor but for its rows, which differ from rank to rank.
std::string DescribeRows(const Tensor& tensor);

// What a rank means to do, as ranks compare it, and in words.
struct Meaning {
  uint32_t fingerprint = 0;               // another where the words are others
  absl::FunctionRef<std::string()> text;  // made where there is a difference to explain
};

// A number for what a rank says, in 31 bits.
uint32_t FingerprintOf(const Fingerprint& said);
uint32_t FingerprintOf(absl::string_view description);
// Of all that DescribeRows says.
void AddRows(const Tensor& tensor, Fingerprint& fingerprint);

// Every rank's `own`, by rank, which is in 0..kMostNoted, once all have said the same of what they
// mean to do. One exchange. Errors: those of ExplainDifference and Group::ExchangeSizes.
inline constexpr int64_t kMostNoted = 0xffffffff;
absl::StatusOr<client::Sizes> ExchangeAgreed(client::Group& group, int64_t own,
                                             const Meaning& meaning, const TimeLeft& time);

// When fingerprints differed, which all ranks saw: says in words what two of them mean, the same on
// all. Errors: INVALID_ARGUMENT; those of Group::AllGatherObjects.
absl::Status ExplainDifference(client::Group& group, const Meaning& meaning, const TimeLeft& time);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_AGREEMENT_H_
