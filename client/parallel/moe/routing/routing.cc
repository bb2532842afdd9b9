#include "client/parallel/moe/routing/routing.h"

#include <cstddef>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

int64_t Rows(const Tensor& tensor) { return tensor.shape()[0]; }
int64_t Slots(const Tensor& ids) { return ids.shape()[1]; }

// Reads ids of both types.
class IdReader {
 public:
  explicit IdReader(const Tensor& ids) : data_(ids.data()), wide_(ids.type() == DataType::kI64) {}

  int64_t operator[](int64_t at) const {
    return wide_ ? static_cast<const int64_t*>(data_)[at] : static_cast<const int32_t*>(data_)[at];
  }

 private:
  const void* data_;
  bool wide_;
};

absl::Status BadExpert(int64_t token, int64_t slot, int64_t expert, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("token ", token, " has expert ", expert, " in slot ", slot, ", ", why));
}

// Calls body(token, rank) once for each rank that a token goes to, token by token.
template <typename Body>
void ForEachRow(const Tensor& ids, const ExpertPlacement& placement, const Body& body) {
  const IdReader id(ids);
  std::vector<int64_t> last(static_cast<size_t>(placement.ranks()), -1);  // by rank: token
  for (int64_t token = 0, at = 0; token < Rows(ids); ++token) {
    for (const int64_t end = at + Slots(ids); at < end; ++at) {
      if (id[at] < 0) continue;
      const auto rank = static_cast<size_t>(placement.RankOf(id[at]));
      if (last[rank] == token) continue;
      last[rank] = token;
      body(token, rank);
    }
  }
}

absl::Status CheckIds(const Tensor& ids, const ExpertPlacement& placement) {
  const IdReader id(ids);
  std::vector<int64_t> last(static_cast<size_t>(placement.experts()), -1);  // by expert: token
  for (int64_t token = 0, at = 0; token < Rows(ids); ++token) {
    for (int64_t slot = 0; slot < Slots(ids); ++slot, ++at) {
      const int64_t expert = id[at];
      if (expert == -1) continue;
      if (expert < 0 || expert >= placement.experts()) {
        return BadExpert(token, slot, expert,
                         absl::StrCat("of ", placement.experts(), " experts; -1 is for none"));
      }
      if (last[static_cast<size_t>(expert)] == token) {
        return BadExpert(token, slot, expert, "which it has in a slot before");
      }
      last[static_cast<size_t>(expert)] = token;
    }
  }
  return absl::OkStatus();
}

absl::Status Unknown(int64_t row, const std::string& what) {
  return absl::InternalError(absl::StrCat("row ", row, " came with ", what));
}

}  // namespace

absl::StatusOr<RoutePlan> PlanRoutes(const Tensor& ids, const ExpertPlacement& placement) {
  COHORT_RETURN_IF_ERROR(CheckIds(ids, placement));
  RoutePlan plan;
  plan.rows.resize(static_cast<size_t>(placement.ranks()), 0);
  ForEachRow(ids, placement, [&plan](int64_t, size_t rank) { ++plan.rows[rank]; });
  std::vector<int64_t> next(plan.rows.size(), 0);
  std::partial_sum(plan.rows.begin(), plan.rows.end() - 1, next.begin() + 1);
  plan.tokens.resize(static_cast<size_t>(next.back() + plan.rows.back()));
  ForEachRow(ids, placement, [&](int64_t token, size_t rank) {
    plan.tokens[static_cast<size_t>(next[rank]++)] = token;
  });
  return plan;
}

void WriteLabels(const RoutePlan& plan, const Tensor& ids, const Tensor& weights,
                 const ExpertPlacement& placement, const Tensor& labels) {
  const IdReader id(ids);
  const int64_t slots = Slots(ids);
  const auto* const weight = static_cast<const float*>(weights.data());
  auto* label = static_cast<int32_t*>(labels.data());
  size_t row = 0;
  for (size_t rank = 0; rank < plan.rows.size(); ++rank) {
    for (const size_t end = row + static_cast<size_t>(plan.rows[rank]); row < end; ++row) {
      const int64_t token = plan.tokens[row];
      *label++ = static_cast<int32_t>(token);
      for (int64_t slot = 0; slot < slots; ++slot, ++label) {
        const int64_t at = token * slots + slot;
        const bool its = id[at] >= 0 && placement.RankOf(id[at]) == static_cast<int>(rank);
        const float its_weight = its ? weight[at] : 0.0f;
        *label = its ? placement.LocalOf(id[at]) : -1;
        std::memcpy(label + slots, &its_weight, sizeof its_weight);
      }
      label += slots;
    }
  }
}

void WriteLabels(const Tensor& ids, const Tensor& weights, const Tensor& labels) {
  const IdReader id(ids);
  const int64_t slots = Slots(ids);
  const auto* const weight = static_cast<const float*>(weights.data());
  auto* label = static_cast<int32_t*>(labels.data());
  for (int64_t token = 0, at = 0; token < Rows(ids); ++token) {
    *label++ = static_cast<int32_t>(token);
    for (int64_t slot = 0; slot < slots; ++slot, ++at, ++label) {
      *label = static_cast<int32_t>(id[at]);
      std::memcpy(label + slots, &weight[at], sizeof(float));
    }
    label += slots;
  }
}

absl::StatusOr<ReceivedLabels> ReadLabels(const Tensor& labels, bool all,
                                          const ExpertPlacement& placement, int rank,
                                          const Tensor& ids, const Tensor& weights) {
  const int64_t rows = Rows(ids);
  const int64_t slots = Slots(ids);
  const int64_t experts_here = placement.CountOf(rank);
  const auto* label = static_cast<const int32_t*>(labels.data());
  auto* const id = static_cast<int32_t*>(ids.data());
  auto* const weight = static_cast<float*>(weights.data());
  ReceivedLabels received;
  received.tokens.reserve(static_cast<size_t>(rows));
  received.row_counts.resize(static_cast<size_t>(experts_here), 0);
  for (int64_t row = 0; row < rows; ++row, label += LabelWidth(slots)) {
    if (label[0] < 0) return Unknown(row, absl::StrCat("the number ", label[0]));
    received.tokens.push_back(label[0]);
    for (int64_t slot = 0; slot < slots; ++slot) {
      int32_t expert = label[1 + slot];
      if (expert < -1 || expert >= (all ? placement.experts() : experts_here)) {
        return Unknown(row, absl::StrCat("expert ", expert));
      }
      if (all && expert >= 0) {
        expert = placement.RankOf(expert) == rank ? placement.LocalOf(expert) : -1;
      }
      const int64_t at = row * slots + slot;
      id[at] = expert;
      weight[at] = 0;
      if (expert < 0) continue;
      std::memcpy(&weight[at], &label[1 + slots + slot], sizeof(float));
      ++received.row_counts[static_cast<size_t>(expert)];
    }
  }
  std::vector<int64_t> next(received.row_counts.size() + 1, 0);
  std::partial_sum(received.row_counts.begin(), received.row_counts.end(), next.begin() + 1);
  received.by_expert.resize(static_cast<size_t>(next.back()));
  received.weights.resize(received.by_expert.size());
  for (int64_t row = 0, at = 0; row < rows; ++row) {
    for (int64_t slot = 0; slot < slots; ++slot, ++at) {
      if (id[at] < 0) continue;
      const auto to = static_cast<size_t>(next[static_cast<size_t>(id[at])]++);
      received.by_expert[to] = {row, static_cast<int32_t>(slot)};
      received.weights[to] = weight[at];
    }
  }
  return received;
}

}  // namespace cohort::parallel
