#include "client/python/core/layout_groups.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group_factory.h"
#include "client/parallel/layout/grid.h"
#include "client/parallel/layout/groups/create_groups.h"
#include "client/parallel/layout/groups/create_layout.h"
#include "client/parallel/layout/layout.h"
#include "client/parallel/layout/role.h"
#include "client/python/core/blocking.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/convert.h"
#include "client/python/core/layout.h"
#include "client/python/core/method.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {
namespace {

using parallel::CreateLayoutOptions;
using parallel::GroupKind;
using parallel::Layout;
using parallel::ParallelGroups;

// A group, and the kinds that it serves.
struct Shared {
  std::shared_ptr<client::Group> group;
  std::vector<GroupKind> kinds;
};

std::vector<Shared> ByGroup(const ParallelGroups& made) {
  std::vector<Shared> all;
  for (const parallel::GroupFamily& family : made.layout().families()) {
    const absl::StatusOr<parallel::Subgroup> own = made.Get(family.kind);
    if (!own.ok()) continue;  // this rank is in no group of the kind
    auto place = all.begin();
    while (place != all.end() && place->group != own->group) ++place;
    if (place == all.end()) place = all.insert(place, {own->group, {}});
    place->kinds.push_back(family.kind);
  }
  return all;
}

// The group is joined as `world` is. Its membership shares a cancellation with those that were created
// with it, so that it gets another one.
PyObject* WriteGroup(const std::shared_ptr<client::Group>& group, const RunningGroup& world) {
  return WriteInstance(std::make_unique<GroupHandle>(std::make_shared<RunningGroup>(
      group, world.form, std::make_shared<client::Cancellation>())));
}

// Calls `create(factory)` as a blocking call. Returns `write(created)`, or null with an exception.
template <typename Create, typename Write>
PyObject* RunCreation(RunningGroup& world, const Create& create, const Write& write) {
  const auto cancellation = std::make_shared<client::Cancellation>();
  const auto end = [&](const absl::Status& reason) {
    cancellation->Cancel(reason);
    world.group->Abort(reason);
  };
  Blocking blocking(end, &world);
  if (blocking.raised()) return nullptr;
  const auto created = blocking.Run([&] {
    const client::CancellationScope scope(*cancellation);
    return create(world.form.Factory(cancellation));
  });
  return created.ok() && !blocking.raised() ? write(*created) : blocking.Raise(created.status());
}

}  // namespace

PyObject* CreateLayout(GroupHandle& handle, PyObject* layout, PyObject* kinds, PyObject* separate,
                       PyObject* name, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::Group& world = *running->group;
  std::optional<Layout> plan;
  CreateLayoutOptions options;
  absl::Status fit;
  if (!Read(timeout, "timeout", &options.timeout) || !Read(name, "name", &options.name) ||
      !ReadKinds(kinds, "kinds", &options.kinds) ||
      !ReadKinds(separate, "separate", &options.separate) || !ReadLayout(layout, &plan)) {
    fit = TakeException();
  }
  const auto create = [&](const client::GroupFactory& factory) -> absl::StatusOr<ParallelGroups> {
    if (!fit.ok()) return parallel::FailCreateLayout(world, fit, options.timeout);
    return parallel::CreateLayout(world, *plan, factory, options);
  };
  const auto write = [&](const ParallelGroups& made) {
    return WriteList(ByGroup(made), [&](const Shared& shared) -> PyObject* {
      Object group(shared.group.get() == &world ? WriteNone() : WriteGroup(shared.group, *running));
      if (!group) return nullptr;
      return Py_BuildValue(
          "(NN)", group.release(),
          WriteList(shared.kinds, [](const GroupKind& kind) { return WriteText(NameOf(kind)); }));
    });
  };
  return RunCreation(*running, create, write);
}

PyObject* CreateGroups(GroupHandle& handle, PyObject* lists, PyObject* overlap, PyObject* name,
                       PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  client::Group& world = *running->group;
  parallel::RankLists ranks;
  parallel::CreateGroupsOptions options;
  absl::Status fit;
  if (!Read(timeout, "timeout", &options.timeout) || !Read(name, "name", &options.name) ||
      !Read(overlap, "overlap", &options.overlap) || !Read(lists, "lists", &ranks)) {
    fit = TakeException();
  }
  using Subgroups = std::vector<parallel::Subgroup>;
  const auto create = [&](const client::GroupFactory& factory) -> absl::StatusOr<Subgroups> {
    if (!fit.ok()) return parallel::FailCreateGroups(world, fit, options.timeout);
    return parallel::CreateGroups(world, ranks, parallel::Role::kUnspecified, factory, options);
  };
  const auto write = [&](const Subgroups& made) {
    return WriteList(made, [&](const parallel::Subgroup& subgroup) {
      return WriteGroup(subgroup.group, *running);
    });
  };
  return RunCreation(*running, create, write);
}

}  // namespace cohort::python
