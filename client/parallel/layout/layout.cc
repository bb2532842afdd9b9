#include "client/parallel/layout/layout.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

void AppendKind(std::string* text, const GroupFamily& family) {
  absl::StrAppend(text, NameOf(family.kind));
}

std::string FormatGrid(const Grid& grid) {
  std::vector<std::string> axes;
  for (const Axis axis : grid.order()) {
    axes.push_back(absl::StrCat(NameOf(axis), " ", grid.size(axis)));
  }
  return absl::StrCat(absl::StrJoin(axes, " x "), " from rank ", grid.first_rank());
}

}  // namespace

const GroupFamily* Layout::Find(GroupKind kind) const {
  const auto family = std::find_if(families_.begin(), families_.end(),
                                   [&](const GroupFamily& known) { return known.kind == kind; });
  return family == families_.end() ? nullptr : &*family;
}

absl::Status Layout::NoSuch(GroupKind kind) const {
  return absl::FailedPreconditionError(absl::StrCat("the layout has no groups of kind ",
                                                    NameOf(kind), "; it has ",
                                                    absl::StrJoin(families_, ", ", AppendKind)));
}

absl::Status Layout::Add(GroupFamily family) {
  if (Has(family.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout has groups of kind ", NameOf(family.kind), " already"));
  }
  std::vector<bool> seen(static_cast<size_t>(world_size()));
  for (const RankList& list : family.lists) {
    if (list.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a group of kind ", NameOf(family.kind), " has no ranks"));
    }
    for (const int rank : list) {
      if (rank < first_rank() || rank - first_rank() >= world_size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " of a group of kind ", NameOf(family.kind), " is not in ",
                         first_rank(), "..", first_rank() + world_size() - 1));
      }
      const auto place = static_cast<size_t>(rank - first_rank());
      if (seen[place]) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " is twice in groups of kind ", NameOf(family.kind)));
      }
      seen[place] = true;
    }
  }
  families_.push_back(std::move(family));
  return absl::OkStatus();
}

absl::Status Layout::Add(GroupKind kind, const std::vector<Axis>& axes) {
  COHORT_ASSIGN_OR_RETURN(RankLists lists, grid_.Groups(axes));
  return Add({kind, std::move(lists)});
}

absl::StatusOr<RankLists> Layout::Lists(GroupKind kind) const {
  const GroupFamily* const family = Find(kind);
  if (family == nullptr) return NoSuch(kind);
  return family->lists;
}

absl::StatusOr<RankList> Layout::ListOf(GroupKind kind, int rank) const {
  const GroupFamily* const family = Find(kind);
  if (family == nullptr) return NoSuch(kind);
  COHORT_RETURN_IF_ERROR(grid_.At(rank).status());
  for (const RankList& list : family->lists) {
    if (std::find(list.begin(), list.end(), rank) != list.end()) return list;
  }
  return RankList();
}

absl::Status Layout::CheckSame(const Layout& other) const {
  const std::string ours = FormatGrid(grid_);
  const std::string theirs = FormatGrid(other.grid_);
  if (ours != theirs) {
    return absl::FailedPreconditionError(
        absl::StrCat("the layouts differ: ", ours, ", and ", theirs));
  }
  for (const GroupFamily& family : families_) {
    const GroupFamily* const same = other.Find(family.kind);
    if (same != nullptr && *same == family) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the layouts differ in groups of kind ", NameOf(family.kind),
                     same == nullptr ? ", which one of them lacks" : ""));
  }
  if (other.families_.size() > families_.size()) return other.CheckSame(*this);
  return absl::OkStatus();
}

absl::StatusOr<Layout> MakeLayout(int world_size, const std::vector<AxisSize>& sizes,
                                  const AxisOrder& order, int first_rank) {
  COHORT_ASSIGN_OR_RETURN(Grid grid, Grid::Create(world_size, sizes, order, first_rank));
  Layout layout(std::move(grid));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kWorld, layout.grid().order()));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kTensor, {Axis::kTensor}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kContext, {Axis::kContext}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kExpert, {Axis::kExpert}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kData, {Axis::kData}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kPipeline, {Axis::kPipeline}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kModel, {Axis::kTensor, Axis::kPipeline}));
  return layout;
}

absl::StatusOr<int> SizeInWorld(int world_size, Axis axis, std::optional<int> given,
                                const std::vector<AxisSize>& others, absl::string_view what) {
  const std::string of = what.empty() ? std::string() : absl::StrCat(" of ", what);
  std::vector<AxisSize> all = others;
  if (given.has_value()) all.push_back({axis, *given});
  constexpr int64_t kMostRanks = int64_t{1} << 31;
  int64_t product = 1;
  for (const AxisSize& one : all) {
    if (one.size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the size ", NameOf(one.axis), " ", one.size, of, " is below 1"));
    }
    product = std::min(product * one.size, kMostRanks);
  }
  const std::string factors = absl::StrCat(
      absl::StrJoin(all, " x ",
                    [](std::string* text, const AxisSize& one) {
                      absl::StrAppend(text, NameOf(one.axis), " ", one.size);
                    }),
      " = ", product == kMostRanks ? "2^31 or more" : absl::StrCat(product), of);
  if (given.has_value() && product != world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the world has ", world_size, " ranks, and the product of the sizes is ",
                     factors, "; ", NameOf(axis), " may be left out"));
  }
  if (world_size < 1 || world_size % product != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the world has ", world_size, " ranks, no multiple of ", factors));
  }
  return given.value_or(static_cast<int>(world_size / product));
}

absl::StatusOr<int> Divide(absl::string_view what, int total, int parts) {
  if (parts < 1 || total < 1 || total % parts != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", total, " is no positive multiple of ", parts));
  }
  return total / parts;
}

absl::StatusOr<RankLists> Runs(absl::string_view what, const RankLists& lists, int size) {
  RankLists runs;
  for (const RankList& list : lists) {
    COHORT_ASSIGN_OR_RETURN(const int count, Divide(what, static_cast<int>(list.size()), size));
    for (int run = 0; run < count; ++run) {
      runs.emplace_back(list.begin() + run * size, list.begin() + (run + 1) * size);
    }
  }
  return runs;
}

}  // namespace cohort::parallel
