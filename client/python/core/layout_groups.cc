#include "client/python/core/layout_groups.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

}  // namespace

PyObject* CreateLayout(GroupHandle& handle, PyObject* layout, PyObject* kinds, PyObject* separate,
                       PyObject* name, PyObject* timeout) {
  const std::shared_ptr<RunningGroup> running = handle.Use();
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
  const auto cancellation = std::make_shared<client::Cancellation>();
  const auto end = [&](const absl::Status& reason) {
    cancellation->Cancel(reason);
    world.Abort(reason);
  };
  const Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<ParallelGroups> made = blocking.Run([&]() -> absl::StatusOr<ParallelGroups> {
    const client::CancellationScope scope(*cancellation);
    if (!fit.ok()) return parallel::FailCreateLayout(world, fit, options.timeout);
    return parallel::CreateLayout(world, *plan, running->form.Factory(cancellation), options);
  });
  if (!made.ok()) return blocking.Raise(made.status());
  return WriteList(ByGroup(*made), [&](const Shared& shared) -> PyObject* {
    Object group(shared.group.get() == &world
                     ? WriteNone()
                     : WriteInstance(std::make_unique<GroupHandle>(
                           std::make_shared<RunningGroup>(shared.group, running->form))));
    if (!group) return nullptr;
    return Py_BuildValue(
        "(NN)", group.release(),
        WriteList(shared.kinds, [](const GroupKind& kind) { return WriteText(NameOf(kind)); }));
  });
}

}  // namespace cohort::python
