#include "client/parallel/moe/routing/expert_placement.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/fingerprint.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

// The most experts, and the most ranks.
constexpr int kMost = 1 << 20;

absl::Status Check(int64_t experts, int ranks) {
  if (ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("experts placed on ", ranks, " ranks"));
  }
  if (ranks > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts placed on ", ranks, " ranks: there may be at most ", kMost));
  }
  if (experts >= 0 && experts <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(experts, " experts: there may be 0 to ", kMost));
}

}  // namespace

ExpertPlacement::ExpertPlacement(std::vector<int> rank_of_expert, int ranks)
    : rank_(std::move(rank_of_expert)), counts_(static_cast<size_t>(ranks), 0) {
  Fingerprint fingerprint;
  fingerprint.Add(static_cast<uint64_t>(ranks));
  local_.reserve(rank_.size());
  for (const int rank : rank_) {
    local_.push_back(static_cast<int32_t>(counts_[static_cast<size_t>(rank)]++));
    fingerprint.Add(static_cast<uint64_t>(rank));
  }
  fingerprint_ = fingerprint.value();
}

absl::StatusOr<ExpertPlacement> ExpertPlacement::Blocks(int64_t experts, int ranks) {
  COHORT_RETURN_IF_ERROR(Check(experts, ranks));
  std::vector<int> rank_of_expert;
  rank_of_expert.reserve(static_cast<size_t>(experts));
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t count = experts / ranks + (rank < experts % ranks ? 1 : 0);
    rank_of_expert.insert(rank_of_expert.end(), static_cast<size_t>(count), rank);
  }
  return ExpertPlacement(std::move(rank_of_expert), ranks);
}

absl::StatusOr<ExpertPlacement> ExpertPlacement::RoundRobin(int64_t experts, int ranks) {
  COHORT_RETURN_IF_ERROR(Check(experts, ranks));
  std::vector<int> rank_of_expert;
  rank_of_expert.reserve(static_cast<size_t>(experts));
  for (int64_t expert = 0; expert < experts; ++expert) {
    rank_of_expert.push_back(static_cast<int>(expert % ranks));
  }
  return ExpertPlacement(std::move(rank_of_expert), ranks);
}

absl::StatusOr<ExpertPlacement> ExpertPlacement::Of(std::vector<int> rank_of_expert, int ranks) {
  COHORT_RETURN_IF_ERROR(Check(static_cast<int64_t>(rank_of_expert.size()), ranks));
  for (size_t expert = 0; expert < rank_of_expert.size(); ++expert) {
    const int rank = rank_of_expert[expert];
    if (rank >= 0 && rank < ranks) continue;
    return absl::InvalidArgumentError(absl::StrCat("expert ", expert, " is placed on rank ", rank,
                                                   ", which is not in 0..", ranks - 1));
  }
  return ExpertPlacement(std::move(rank_of_expert), ranks);
}

std::vector<int64_t> ExpertPlacement::ExpertsOf(int rank) const {
  std::vector<int64_t> experts;
  experts.reserve(static_cast<size_t>(CountOf(rank)));
  for (int64_t expert = 0; expert < this->experts(); ++expert) {
    if (RankOf(expert) == rank) experts.push_back(expert);
  }
  return experts;
}

}  // namespace cohort::parallel
