// Which ranks of a world form which groups. The functions use only their arguments.
//
//   COHORT_ASSIGN_OR_RETURN(Layout layout,
//                           MakeLayout(8, {{Axis::kTensor, 2}, {Axis::kPipeline, 2},
//                                          {Axis::kData, 2}},
//                                      {Axis::kTensor, Axis::kData, Axis::kPipeline}));
//
// Layouts of frameworks are in vllm_layout.h, megatron_layout.h and colossalai_layout.h;
// create_layout.h creates their groups.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_LAYOUT_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parallel/layout/grid.h"
#include "client/parallel/layout/role.h"

namespace cohort::parallel {

// All groups of one kind. No rank is in two of them; of most kinds each rank is in one.
struct GroupFamily {
  GroupKind kind;
  RankLists lists;
  // If true, these groups are not shared with groups of other kinds that have the same members.
  bool separate = false;

  friend bool operator==(const GroupFamily& a, const GroupFamily& b) {
    return a.kind == b.kind && a.lists == b.lists && a.separate == b.separate;
  }
};

class Layout {
 public:
  explicit Layout(Grid grid) : grid_(std::move(grid)) {}

  // Errors: INVALID_ARGUMENT (the layout already has the kind; a list is empty; a rank is twice in
  // `lists`, or is not a rank of the grid).
  absl::Status Add(GroupFamily family);
  // Adds the groups over `axes` of the grid.
  absl::Status Add(GroupKind kind, const std::vector<Axis>& axes);

  const Grid& grid() const { return grid_; }
  int world_size() const { return grid_.world_size(); }
  int first_rank() const { return grid_.first_rank(); }
  // In the order in which they were added.
  const std::vector<GroupFamily>& families() const { return families_; }
  bool Has(GroupKind kind) const { return Find(kind) != nullptr; }

  // Errors: FAILED_PRECONDITION (the layout has no such groups; names those it has).
  absl::StatusOr<RankLists> Lists(GroupKind kind) const;
  // The list that `rank` is in; empty if it is in no list. Errors: as above; INVALID_ARGUMENT (no
  // rank of the layout).
  absl::StatusOr<RankList> ListOf(GroupKind kind, int rank) const;

  // OK, or FAILED_PRECONDITION, naming the first difference: sizes, order, kinds or members. It
  // compares everything.
  absl::Status CheckSame(const Layout& other) const;

 private:
  const GroupFamily* Find(GroupKind kind) const;
  absl::Status NoSuch(GroupKind kind) const;

  Grid grid_;
  std::vector<GroupFamily> families_;
};

// Makes a layout of the world, of kModel, and of a kind for each axis: kTensor, kContext, kExpert,
// kData and kPipeline, those of size 1 as well. Further kinds can be added. Errors: those of
// Grid::Create.
absl::StatusOr<Layout> MakeLayout(int world_size, const std::vector<AxisSize>& sizes,
                                  const AxisOrder& order, int first_rank = 0);

// --- Parts of the layouts of frameworks.

// The size of `axis` in a world in which the other axes have the sizes `others`: `given`, or, if
// that is absent, the world's size divided by theirs. `what` is added to errors, such as: dense
// layers; it may be empty. Errors: INVALID_ARGUMENT with the product and the world's size (a size
// below 1; the world is no multiple of the others; the product with `given` is not the world).
absl::StatusOr<int> SizeInWorld(int world_size, Axis axis, std::optional<int> given,
                                const std::vector<AxisSize>& others, absl::string_view what);

// `total` / `parts`. Errors: INVALID_ARGUMENT with `what` and both numbers (a remainder, or either
// below 1).
absl::StatusOr<int> Divide(absl::string_view what, int total, int parts);
// Cuts every list into runs of `size`. Errors: INVALID_ARGUMENT with `what` (a list has a
// remainder).
absl::StatusOr<RankLists> Runs(absl::string_view what, const RankLists& lists, int size);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_LAYOUT_H_
