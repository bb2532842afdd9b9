#include "client/parallel/moe/routing/moe_agreement.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/data_type.h"

namespace cohort::parallel {

std::string DescribeRows(const Tensor& tensor) {
  std::string text = absl::StrCat(NameOf(tensor.type()), " [*");
  for (size_t dim = 1; dim < tensor.shape().size(); ++dim) {
    absl::StrAppend(&text, ", ", tensor.shape()[dim]);
  }
  return absl::StrCat(text, tensor.device().is_host() ? "]" : "] on a GPU");
}

uint32_t FingerprintOf(const Fingerprint& said) {
  const uint64_t value = said.value();
  return static_cast<uint32_t>((value ^ value >> 32) & 0x7fffffff);
}

uint32_t FingerprintOf(absl::string_view description) {
  return FingerprintOf(Fingerprint().Add(description));
}

void AddRows(const Tensor& tensor, Fingerprint& fingerprint) {
  constexpr uint64_t kHost = 256;
  fingerprint.Add(static_cast<uint64_t>(tensor.type()) | (tensor.device().is_host() ? kHost : 0));
  // The count separates the extents from the next number.
  fingerprint.Add(static_cast<uint64_t>(tensor.dims()));
  for (size_t dim = 1; dim < tensor.shape().size(); ++dim) {
    fingerprint.Add(static_cast<uint64_t>(tensor.shape()[dim]));
  }
}

absl::StatusOr<client::Sizes> ExchangeAgreed(client::Group& group, int64_t own,
                                             const Meaning& meaning,
                                             const client::CallDeadline& deadline) {
  constexpr int kOwnNumberBits = 32;
  const int64_t fingerprint = meaning.fingerprint;
  COHORT_ASSIGN_OR_RETURN(
      client::Sizes all, group.ExchangeSizes(fingerprint << kOwnNumberBits | own, deadline.LeftOnHost()));
  const int64_t first = all[0] >> kOwnNumberBits;
  for (int64_t& one : all) {
    if (one >> kOwnNumberBits != first) return ExplainDifference(group, meaning, deadline);
    one &= kMaxOwnNumber;
  }
  return all;
}

absl::Status ExplainDifference(client::Group& group, const Meaning& meaning,
                               const client::CallDeadline& deadline) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> descriptions,
                          group.AllGatherObjects(meaning.text(), deadline.LeftOnHost()));
  const auto other = std::find_if(descriptions.begin(), descriptions.end(),
                                  [&](const std::string& one) { return one != descriptions[0]; });
  if (other == descriptions.end()) {
    return absl::InternalError("the fingerprints of ranks differ, and their descriptions do not");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("group ", group.name(), ": ranks mean different things: rank 0 ",
                   descriptions[0], "; rank ", other - descriptions.begin(), " ", *other));
}

}  // namespace cohort::parallel
