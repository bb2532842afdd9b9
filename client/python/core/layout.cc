#include "client/python/core/layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/parallel/layout/colossalai_layout.h"
#include "client/parallel/layout/grid.h"
#include "client/parallel/layout/megatron_layout.h"
#include "client/parallel/layout/split.h"
#include "client/parallel/layout/vllm_layout.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/method.h"

namespace cohort::python {
namespace {

using parallel::Axis;
using parallel::AxisOrder;
using parallel::AxisSize;
using parallel::GroupFamily;
using parallel::GroupKind;
using parallel::Layout;
using parallel::RankList;
using parallel::RankLists;

bool Refuse(const absl::Status& status) {
  Raise(status);
  return false;
}

bool ReadKind(PyObject* from, const char* name, std::optional<GroupKind>* to) {
  std::string text;
  if (!Read(from, name, &text)) return false;
  *to = parallel::FindGroupKind(text);
  if (to->has_value()) return true;
  return Refuse(absl::InvalidArgumentError(
      absl::StrCat(name, ": there are no groups of kind \"", text, "\"")));
}

// Calls read(key, value) for each item, in order, while it returns true.
template <typename Function>
bool ReadDict(PyObject* from, const char* name, const Function& read) {
  if (!PyDict_Check(from)) {
    PyErr_Format(PyExc_TypeError, "%s: expected a dict, got %S", name, Py_TYPE(from));
    return false;
  }
  const Object items(PyDict_Items(from));
  for (Py_ssize_t i = 0; items && i < PyList_Size(items.get()); ++i) {
    PyObject* const item = PyList_GetItem(items.get(), i);
    if (!read(PyTuple_GetItem(item, 0), PyTuple_GetItem(item, 1))) return false;
  }
  return static_cast<bool>(items);
}

bool ReadAxes(PyObject* from, std::vector<AxisSize>* sizes, AxisOrder* order) {
  return ReadDict(from, "axes", [&](PyObject* key, PyObject* value) {
    std::string name;
    AxisSize size;
    if (!Read(key, "axes", &name) || !Read(value, "axes", &size.size)) return false;
    const std::optional<Axis> axis = parallel::FindAxis(name);
    if (!axis.has_value()) {
      return Refuse(absl::InvalidArgumentError(
          absl::StrCat("axes: \"", name,
                       "\" is no axis; axes are tp, cp, ep, dp, pp, external-dp, tp-x, tp-y "
                       "and tp-z")));
    }
    size.axis = *axis;
    sizes->push_back(size);
    order->push_back(*axis);
    return true;
  });
}

PyObject* WriteRankList(const RankList& ranks) {
  return WriteList(ranks, [](int rank) { return Write(rank); });
}

PyObject* WriteAxes(const parallel::Grid& grid) {
  Object axes(PyDict_New());
  for (const Axis axis : grid.order()) {
    const Object name(WriteText(NameOf(axis))), size(Write(grid.size(axis)));
    if (!axes || !name || !size || PyDict_SetItem(axes.get(), name.get(), size.get()) != 0) {
      return nullptr;
    }
  }
  return axes.release();
}

PyObject* WriteFamilies(const std::vector<GroupFamily>& all) {
  Object families(PyDict_New());
  for (const GroupFamily& family : all) {
    const Object name(WriteText(NameOf(family.kind)));
    const Object lists(WriteList(family.lists, WriteRankList));
    if (!families || !name || !lists ||
        PyDict_SetItem(families.get(), name.get(), lists.get()) != 0) {
      return nullptr;
    }
  }
  return families.release();
}

PyObject* WriteLayout(const absl::StatusOr<Layout>& layout) {
  if (!layout.ok()) return Raise(layout.status());
  std::vector<GroupKind> separate;
  for (const GroupFamily& family : layout->families()) {
    if (family.separate) separate.push_back(family.kind);
  }
  return Py_BuildValue(
      "(iNNiN)", layout->world_size(), WriteAxes(layout->grid()), WriteFamilies(layout->families()),
      layout->first_rank(),
      WriteList(separate, [](const GroupKind& kind) { return WriteText(NameOf(kind)); }));
}

PyObject* MakeLayout(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  int world_size = 0, first_rank = 0;
  PyObject* axes = Py_None;
  std::vector<AxisSize> sizes;
  AxisOrder order;
  if (!options.Get("world_size", &world_size) || !options.Get("first_rank", &first_rank) ||
      !options.Get("axes", &axes) || !options.Finish() || !ReadAxes(axes, &sizes, &order)) {
    return nullptr;
  }
  return WriteLayout(parallel::MakeLayout(world_size, sizes, order, first_rank));
}

PyObject* VllmLayout(PyObject* /*module*/, PyObject* dict) {
  using DecodeOrder = parallel::VllmSizes::DecodeOrder;
  Options options(dict);
  int world_size = 0;
  parallel::VllmSizes sizes;
  std::string decode_order = "tensor-first";
  if (!options.Get("world_size", &world_size) || !options.Get("tensor", &sizes.tensor) ||
      !options.Get("pipeline", &sizes.pipeline) ||
      !options.Get("prefill_context", &sizes.prefill_context) ||
      !options.Get("decode_context", &sizes.decode_context) || !options.Get("data", &sizes.data) ||
      !options.Get("external_data", &sizes.external_data) ||
      !options.Get("decode_order", &decode_order) || !options.Get("experts", &sizes.experts) ||
      !options.Get("expert_load_balancing", &sizes.expert_load_balancing) || !options.Finish()) {
    return nullptr;
  }
  if (decode_order != "tensor-first" && decode_order != "context-first") {
    return Raise(absl::InvalidArgumentError(absl::StrCat(
        "decode_order: expected tensor-first or context-first, got \"", decode_order, "\"")));
  }
  sizes.decode_order =
      decode_order == "context-first" ? DecodeOrder::kContextFirst : DecodeOrder::kTensorFirst;
  return WriteLayout(parallel::VllmLayout(world_size, sizes));
}

PyObject* MegatronLayout(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  int world_size = 0;
  parallel::MegatronSizes sizes;
  std::string order = parallel::FormatOrder(sizes.order);
  if (!options.Get("world_size", &world_size) || !options.Get("tensor", &sizes.tensor) ||
      !options.Get("pipeline", &sizes.pipeline) || !options.Get("context", &sizes.context) ||
      !options.Get("data", &sizes.data) || !options.Get("expert", &sizes.expert) ||
      !options.Get("expert_tensor", &sizes.expert_tensor) ||
      !options.Get("virtual_pipeline", &sizes.virtual_pipeline) || !options.Get("order", &order) ||
      !options.Get("first_rank", &sizes.first_rank) ||
      !options.Get("hierarchical_context", &sizes.hierarchical_context) ||
      !options.Get("hybrid_context", &sizes.hybrid_context) ||
      !options.Get("optimizer_instances", &sizes.optimizer_instances) ||
      !options.Get("embedding_stages", &sizes.embedding_stages) ||
      !options.Get("position_embedding_stages", &sizes.position_embedding_stages) ||
      !options.Finish()) {
    return nullptr;
  }
  absl::StatusOr<AxisOrder> parsed = parallel::ParseOrder(order);
  if (!parsed.ok()) return Raise(parsed.status());
  sizes.order = *std::move(parsed);
  return WriteLayout(parallel::MegatronLayout(world_size, sizes));
}

PyObject* ColossalaiLayout(PyObject* /*module*/, PyObject* dict) {
  using parallel::TensorMode;
  constexpr std::pair<absl::string_view, TensorMode> kModes[] = {
      {"none", TensorMode::kNone}, {"1d", TensorMode::k1D}, {"2d", TensorMode::k2D},
      {"2.5d", TensorMode::k2P5D}, {"3d", TensorMode::k3D}, {"sequence", TensorMode::kSequence},
  };
  Options options(dict);
  int world_size = 0;
  parallel::ColossalaiSizes sizes;
  std::string text = "none";
  if (!options.Get("world_size", &world_size) || !options.Get("tensor", &sizes.tensor) ||
      !options.Get("pipeline", &sizes.pipeline) || !options.Get("data", &sizes.data) ||
      !options.Get("mode", &text) || !options.Get("depth", &sizes.depth) ||
      !options.Get("expert", &sizes.expert) || !options.Finish()) {
    return nullptr;
  }
  const auto* const mode = std::find_if(std::begin(kModes), std::end(kModes),
                                        [&](const auto& known) { return known.first == text; });
  if (mode == std::end(kModes)) {
    return Raise(absl::InvalidArgumentError(
        absl::StrCat("mode: expected none, 1d, 2d, 2.5d, 3d or sequence, got \"", text, "\"")));
  }
  sizes.mode = mode->second;
  return WriteLayout(parallel::ColossalaiLayout(world_size, sizes));
}

PyObject* CheckLayout(PyObject* /*module*/, PyObject* from) {
  std::optional<Layout> layout;
  return ReadLayout(from, &layout) ? WriteNone() : nullptr;
}

PyObject* SplitLayers(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  int layers = 0, stages = 0;
  std::optional<std::vector<int>> counts;
  if (!options.Get("layers", &layers) || !options.Get("stages", &stages) ||
      !options.Get("counts", &counts) || !options.Finish()) {
    return nullptr;
  }
  const auto ranges = counts.has_value() ? parallel::SplitLayers(layers, stages, *counts)
                                         : parallel::SplitLayers(layers, stages);
  if (!ranges.ok()) return Raise(ranges.status());
  return WriteList(*ranges, [](const parallel::LayerRange& range) {
    return Py_BuildValue("(ii)", range.begin, range.end);
  });
}

PyMethodDef functions[] = {Function<&MakeLayout>("make_layout"),
                           Function<&VllmLayout>("vllm_layout"),
                           Function<&MegatronLayout>("megatron_layout"),
                           Function<&ColossalaiLayout>("colossalai_layout"),
                           Function<&CheckLayout>("check_layout"),
                           Function<&SplitLayers>("split_layers"),
                           {}};

}  // namespace

bool ReadKinds(PyObject* from, const char* name, std::vector<GroupKind>* to) {
  std::vector<PyObject*> items;
  if (!Read(from, name, &items)) return false;
  for (PyObject* const item : items) {
    std::optional<GroupKind> kind;
    if (!ReadKind(item, name, &kind)) return false;
    to->push_back(*kind);
  }
  return true;
}

bool ReadLayout(PyObject* from, std::optional<Layout>* to) {
  if (!PyTuple_Check(from) || PyTuple_Size(from) != 5) {
    PyErr_Format(PyExc_TypeError, "layout: expected a Layout, got %S", Py_TYPE(from));
    return false;
  }
  int world_size = 0, first_rank = 0;
  std::vector<AxisSize> sizes;
  AxisOrder order;
  std::vector<GroupKind> separate;
  if (!Read(PyTuple_GetItem(from, 0), "world_size", &world_size) ||
      !ReadAxes(PyTuple_GetItem(from, 1), &sizes, &order) ||
      !Read(PyTuple_GetItem(from, 3), "first_rank", &first_rank) ||
      !ReadKinds(PyTuple_GetItem(from, 4), "separate", &separate)) {
    return false;
  }
  absl::StatusOr<parallel::Grid> grid =
      parallel::Grid::Create(world_size, sizes, order, first_rank);
  if (!grid.ok()) return Refuse(grid.status());
  to->emplace(*std::move(grid));
  return ReadDict(PyTuple_GetItem(from, 2), "families", [&](PyObject* key, PyObject* value) {
    std::optional<GroupKind> kind;
    RankLists lists;
    if (!ReadKind(key, "families", &kind) || !Read(value, "families", &lists)) return false;
    const bool apart = std::find(separate.begin(), separate.end(), *kind) != separate.end();
    const absl::Status added = (*to)->Add({*kind, std::move(lists), apart});
    return added.ok() || Refuse(added);
  });
}

bool AddLayout(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace cohort::python
