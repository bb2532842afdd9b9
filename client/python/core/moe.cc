#include "client/python/core/moe.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/data_type.h"
#include "base/tensor/tensor.h"
#include "client/parallel/moe/dispatch.h"
#include "client/parallel/moe/expert_dispatch.h"
#include "client/parallel/moe/routing/expert_placement.h"
#include "client/python/core/array.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/method.h"

namespace cohort::python {
namespace {

using parallel::DispatchedBatch;
using parallel::ExpertBatch;
using parallel::ExpertForm;
using parallel::ExpertPlacement;
using parallel::TokenSizes;
using parallel::WeightsBy;

// Read(), for arguments that fail the call on all ranks. Errors: as CollectiveArguments::Read.
template <typename T>
absl::Status ReadArgument(PyObject* from, const char* name, T* to) {
  return Read(from, name, to) ? absl::OkStatus() : TakeException();
}
absl::Status ReadArgument(PyObject* from, const char* name, Array* to) {
  return to->Read(from, name, Access::kRead) ? absl::OkStatus() : TakeException();
}
absl::Status ReadArgument(PyObject* from, const char* name, Arrays* to) {
  return to->Read(from, name, Access::kRead);
}
template <typename T>
absl::Status ReadArgument(PyObject* from, const char* name, T** to) {
  *to = ReadInstance<T>(from, name);
  return *to != nullptr ? absl::OkStatus() : TakeException();
}

// Runs `call(group)`, which returns a StatusOr, once the work on `stream` is done, or fails it on
// all ranks with `fit`. Returns nothing, with an exception, if it failed.
template <typename T, typename Call>
std::optional<T> RunForResult(RunningGroup& running, absl::Status fit,
                              const std::optional<void*>& stream,
                              const client::CallOptions& options, const Call& call) {
  std::optional<T> result;
  const Object done(RunOnAllRanks(running, options, [&](client::Group& group) {
    if (fit.ok()) fit = running.form.AwaitStream(stream, options);
    if (!fit.ok()) return group.FailCollectiveAs(fit, options);
    absl::StatusOr<T> made = call(group);
    if (made.ok()) result = *std::move(made);
    return made.status();
  }));
  return result;
}

}  // namespace

PyObject* Dispatch(GroupHandle& handle, PyObject* hidden, PyObject* companions, PyObject* extras,
                   PyObject* sizes, PyObject* sequence_parallel, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Array hidden_array;
  Arrays companion_arrays, extra_arrays;
  parallel::DispatchOptions options;
  const auto read = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(ReadTimeout(timeout, &options.call));
    COHORT_RETURN_IF_ERROR(ReadArgument(hidden, "hidden", &hidden_array));
    COHORT_RETURN_IF_ERROR(ReadArgument(companions, "companions", &companion_arrays));
    COHORT_RETURN_IF_ERROR(ReadArgument(extras, "extras", &extra_arrays));
    COHORT_RETURN_IF_ERROR(ReadArgument(sizes, "sizes", &options.sizes));
    return ReadArgument(sequence_parallel, "sequence_parallel", &options.sequence_parallel);
  };
  const absl::Status fit = read();
  // Without sizes, the ranks wait for each other on the host first.
  if (fit.ok() || sizes != Py_None) options.call.stream = hidden_array.stream();
  std::optional<DispatchedBatch> batch = RunForResult<DispatchedBatch>(
      *running, fit, std::nullopt, options.call, [&](client::Group& group) {
        return parallel::Dispatch(
            group, {hidden_array.tensor(), companion_arrays.tensors(), extra_arrays.tensors()},
            options);
      });
  if (!batch.has_value()) return nullptr;
  return Py_BuildValue("(NNNN)", WriteMemory(std::move(batch->hidden)),
                       WriteList(batch->companions, WriteMemory),
                       WriteList(batch->extras, WriteMemory),
                       WriteList(batch->sizes, [](int64_t size) { return Write(size); }));
}

PyObject* Combine(GroupHandle& handle, PyObject* hidden, PyObject* sizes,
                  PyObject* sequence_parallel, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Array array;
  TokenSizes tokens;
  parallel::CombineOptions options;
  const auto read = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(ReadTimeout(timeout, &options.call));
    COHORT_RETURN_IF_ERROR(ReadArgument(hidden, "hidden", &array));
    COHORT_RETURN_IF_ERROR(ReadArgument(sizes, "sizes", &tokens));
    return ReadArgument(sequence_parallel, "sequence_parallel", &options.sequence_parallel);
  };
  const absl::Status fit = read();
  options.call.stream = array.stream();
  std::optional<Tensor> result = RunForResult<Tensor>(
      *running, fit, std::nullopt, options.call, [&](client::Group& group) {
        return parallel::Combine(group, array.tensor(), tokens, options);
      });
  return result.has_value() ? WriteMemory(*std::move(result)) : nullptr;
}

namespace {

const char* FormName(ExpertForm form) {
  switch (form) {
    case ExpertForm::kAuto:
      return "auto";
    case ExpertForm::kRouted:
      return "routed";
    case ExpertForm::kGathered:
      return "gathered";
  }
  return "unknown";
}

absl::Status ReadForm(PyObject* from, ExpertForm* to) {
  std::string text;
  COHORT_RETURN_IF_ERROR(ReadArgument(from, "form", &text));
  for (const ExpertForm form : {ExpertForm::kAuto, ExpertForm::kRouted, ExpertForm::kGathered}) {
    if (text == FormName(form)) {
      *to = form;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("form: expected auto, routed or gathered, got \"", text, "\""));
}

absl::Status ReadWeightsBy(PyObject* from, WeightsBy* to) {
  std::string text;
  COHORT_RETURN_IF_ERROR(ReadArgument(from, "weights_by", &text));
  if (text != "experts" && text != "combine") {
    return absl::InvalidArgumentError(
        absl::StrCat("weights_by: expected experts or combine, got \"", text, "\""));
  }
  *to = text == "experts" ? WeightsBy::kExperts : WeightsBy::kCombine;
  return absl::OkStatus();
}

// Field `field` of each use of a row by an expert, as i64.
template <typename T>
PyObject* WriteColumn(const ExpertBatch& batch, T parallel::ExpertRow::*field) {
  Tensor column =
      Tensor::Uninitialized(DataType::kI64, {static_cast<int64_t>(batch.by_expert.size())});
  auto* to = static_cast<int64_t*>(column.data());
  for (const parallel::ExpertRow& use : batch.by_expert) *to++ = use.*field;
  return WriteMemory(std::move(column));
}

}  // namespace

PyObject* DispatchToExperts(GroupHandle& handle, PyObject* hidden, PyObject* ids, PyObject* weights,
                            PyObject* extras, PyObject* placement, PyObject* form,
                            PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  Array hidden_array, id_array, weight_array;
  Arrays extra_arrays;
  ExpertPlacement* experts = nullptr;
  parallel::ExpertDispatchOptions options;
  const auto read = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(ReadTimeout(timeout, &options.call));
    COHORT_RETURN_IF_ERROR(ReadArgument(hidden, "hidden", &hidden_array));
    COHORT_RETURN_IF_ERROR(ReadArgument(ids, "ids", &id_array));
    COHORT_RETURN_IF_ERROR(ReadArgument(weights, "weights", &weight_array));
    COHORT_RETURN_IF_ERROR(ReadArgument(extras, "extras", &extra_arrays));
    COHORT_RETURN_IF_ERROR(ReadArgument(placement, "placement", &experts));
    return ReadForm(form, &options.form);
  };
  const absl::Status fit = read();
  std::optional<ExpertBatch> batch = RunForResult<ExpertBatch>(
      *running, fit, hidden_array.stream(), options.call, [&](client::Group& group) {
        return parallel::DispatchToExperts(group,
                                           {hidden_array.tensor(), id_array.tensor(),
                                            weight_array.tensor(), extra_arrays.tensors()},
                                           *experts, options);
      });
  if (!batch.has_value()) return nullptr;
  // The way back needs no tensors: they live as long as their arrays in Python.
  const std::vector<Tensor> extra_rows = std::exchange(batch->extras, {});
  const Tensor own[] = {std::exchange(batch->hidden, {}), std::exchange(batch->ids, {}),
                        std::exchange(batch->weights, {})};
  Object rows(WriteColumn(*batch, &parallel::ExpertRow::row));
  Object slots(WriteColumn(*batch, &parallel::ExpertRow::slot));
  Object counts(WriteList(batch->row_counts, [](int64_t count) { return Write(count); }));
  Object form_used(WriteText(FormName(batch->form)));
  return Py_BuildValue("(NNNNNNNNN)",
                       WriteInstance(std::make_unique<ExpertBatch>(*std::move(batch))),
                       WriteMemory(own[0]), WriteMemory(own[1]), WriteMemory(own[2]),
                       WriteList(extra_rows, WriteMemory), form_used.release(), counts.release(),
                       rows.release(), slots.release());
}

PyObject* CombineFromExperts(GroupHandle& handle, PyObject* batch, PyObject* outputs,
                             PyObject* weights_by, PyObject* timeout) {
  const Share<RunningGroup> running = handle.Use();
  if (running == nullptr) return nullptr;
  ExpertBatch* dispatched = nullptr;
  Array array;
  parallel::ExpertCombineOptions options;
  const auto read = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(ReadTimeout(timeout, &options.call));
    COHORT_RETURN_IF_ERROR(ReadArgument(batch, "batch", &dispatched));
    COHORT_RETURN_IF_ERROR(ReadArgument(outputs, "outputs", &array));
    return ReadWeightsBy(weights_by, &options.weights);
  };
  const absl::Status fit = read();
  std::optional<Tensor> result = RunForResult<Tensor>(
      *running, fit, array.stream(), options.call, [&](client::Group& group) {
        return parallel::CombineFromExperts(group, *dispatched, array.tensor(), options);
      });
  return result.has_value() ? WriteMemory(*std::move(result)) : nullptr;
}

namespace {

PyObject* PlaceExperts(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  std::optional<std::vector<int>> rank_of_expert;
  int64_t experts = 0;
  int ranks = 0;
  bool round_robin = false;
  if (!options.Get("rank_of_expert", &rank_of_expert) || !options.Get("experts", &experts) ||
      !options.Get("ranks", &ranks) || !options.Get("round_robin", &round_robin) ||
      !options.Finish()) {
    return nullptr;
  }
  absl::StatusOr<ExpertPlacement> placement =
      rank_of_expert.has_value() ? ExpertPlacement::Of(*std::move(rank_of_expert), ranks)
      : round_robin              ? ExpertPlacement::RoundRobin(experts, ranks)
                                 : ExpertPlacement::Blocks(experts, ranks);
  if (!placement.ok()) return Raise(placement.status());
  return WriteInstance(std::make_unique<ExpertPlacement>(*std::move(placement)));
}

PyObject* RankOfExpert(ExpertPlacement& placement) {
  std::vector<int> ranks;
  for (int64_t e = 0; e < placement.experts(); ++e) ranks.push_back(placement.RankOf(e));
  return WriteList(ranks, [](int rank) { return Write(rank); });
}

PyMethodDef placement_methods[] = {Method<&RankOfExpert>("rank_of_expert"), {}};
PyMethodDef batch_methods[] = {{}};
PyMethodDef functions[] = {Function<&PlaceExperts>("place_experts"), {}};

}  // namespace

bool AddMoe(PyObject* module) {
  const Object placement(
      MakeType<ExpertPlacement>("cohort._core.ExpertPlacement", placement_methods));
  if (!placement) return false;
  const Object batch(MakeType<ExpertBatch>("cohort._core.ExpertBatch", batch_methods));
  return batch && PyModule_AddObjectRef(module, "ExpertPlacement", placement.get()) == 0 &&
         PyModule_AddObjectRef(module, "ExpertBatch", batch.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
