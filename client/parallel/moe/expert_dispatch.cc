#include "client/parallel/moe/expert_dispatch.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/call_deadline.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/moe/expert_routes.h"
#include "client/parallel/moe/routing/moe_agreement.h"
#include "client/parallel/moe/routing/path_costs.h"
#include "client/parallel/moe/rows/exchange_rows.h"
#include "client/parallel/moe/rows/gather_rows.h"
#include "client/parallel/moe/rows/packed_rows.h"
#include "client/parallel/moe/rows/row_moves.h"

namespace cohort::parallel {
namespace {

// The numbers that a rank sends to each other rank before rows move.
enum RouteField : size_t {
  kRows = 0,  // rows from this rank to that one
  kTokens,    // tokens of this rank
  kAllRows,   // rows from this rank to all
  kMeans,     // a fingerprint of this rank's call
  kRouteFields,
};
using RouteSummary = std::array<int64_t, kRouteFields>;

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

absl::Status CheckTokens(const client::Group& group, const ExpertTokens& tokens,
                         const ExpertPlacement& placement, const client::CallOptions& call) {
  if (call.stream.has_value()) {
    return Bad("dispatching to experts cannot run on a stream: ranks wait for each other's counts");
  }
  if (placement.ranks() != group.size()) {
    return Bad(absl::StrCat("experts are placed on ", placement.ranks(),
                            " ranks, and the group has ", group.size()));
  }
  if (tokens.hidden.dims() == 0) return Bad("hidden has no rows: its shape is []");
  COHORT_RETURN_IF_ERROR(CheckCountable(tokens.hidden.type(), tokens.hidden.shape()));
  for (const Tensor& tensor : tokens.extras) {
    COHORT_RETURN_IF_ERROR(CheckCountable(tensor.type(), tensor.shape()));
  }
  const int64_t rows = tokens.hidden.shape()[0];
  if (rows > std::numeric_limits<int32_t>::max()) {
    return Bad(absl::StrCat("hidden has ", rows, " rows"));
  }
  const Tensor& ids = tokens.ids;
  if (ids.dims() != 2 || ids.shape()[0] != rows ||
      (ids.type() != DataType::kI32 && ids.type() != DataType::kI64)) {
    return Bad(absl::StrCat("ids are ", ids.ToString(), ", and not i32 or i64 [", rows, ", k]"));
  }
  COHORT_RETURN_IF_ERROR(CheckCountable(ids.type(), ids.shape()));
  const Tensor& weights = tokens.weights;
  if (weights.type() != DataType::kF32 || weights.shape() != ids.shape()) {
    return Bad(absl::StrCat("weights are ", weights.ToString(), ", and not f32 ",
                            FormatShape(ids.shape())));
  }
  for (size_t i = 0; i < tokens.extras.size(); ++i) {
    if (tokens.extras[i].dims() > 0 && tokens.extras[i].shape()[0] == rows) continue;
    return Bad(absl::StrCat("extra ", i, " is ", tokens.extras[i].ToString(), ", while hidden has ",
                            rows, " rows"));
  }
  return absl::OkStatus();
}

std::string Describe(const ExpertTokens& tokens, const ExpertPlacement& placement,
                     ExpertForm form) {
  std::string text =
      absl::StrCat("dispatches to ", placement.experts(), " experts, placed as ",
                   absl::Hex(placement.fingerprint()), ", in form ", static_cast<int>(form), ", ",
                   tokens.ids.shape()[1], " for each token of ", DescribeRows(tokens.hidden));
  for (const Tensor& extra : tokens.extras) {
    absl::StrAppend(&text, ", extra ", DescribeRows(extra));
  }
  return text;
}

// By rank: the summaries of that rank for this one.
absl::StatusOr<std::vector<RouteSummary>> ExchangeRouteSummaries(
    client::Group& group, const RoutePlan& plan, int64_t tokens, uint32_t means,
    const client::CallDeadline& deadline) {
  const Device device = CommonDevice(group);
  const Shape shape = {group.size(), kRouteFields};
  const auto prepare = [&]() -> absl::StatusOr<Tensor> {
    COHORT_ASSIGN_OR_RETURN(Tensor own, Allocate(group, DataType::kI64, shape));
    auto* const summaries = static_cast<int64_t*>(own.data());
    const auto all_rows = static_cast<int64_t>(plan.tokens.size());
    for (size_t rank = 0; rank < plan.rows.size(); ++rank) {
      const RouteSummary one = {plan.rows[rank], tokens, all_rows, means};
      std::copy(one.begin(), one.end(), summaries + rank * kRouteFields);
    }
    return OnDevice(group, own, device, deadline.Left());
  };
  const absl::StatusOr<Tensor> own = prepare();
  const absl::StatusOr<Tensor> all = Allocate(group, DataType::kI64, shape, device);
  if (!own.ok()) return group.FailCollective(own.status(), deadline.Left());
  if (!all.ok()) return group.FailCollective(all.status(), deadline.Left());
  COHORT_RETURN_IF_ERROR(group.AllToAll(*own, *all, deadline.Left()));
  COHORT_ASSIGN_OR_RETURN(const Tensor host, OnHost(group, *all, deadline.Left()));
  std::vector<RouteSummary> summaries(plan.rows.size());
  const auto* from = static_cast<const int64_t*>(host.data());
  for (RouteSummary& one : summaries) {
    std::copy(from, from + kRouteFields, one.begin());
    from += kRouteFields;
  }
  return summaries;
}

client::Sizes Column(const std::vector<RouteSummary>& summaries, RouteField field) {
  client::Sizes column;
  column.reserve(summaries.size());
  for (const RouteSummary& one : summaries) column.push_back(one[field]);
  return column;
}

// Chosen from values that all ranks know, so that all choose the same.
ExpertForm Choose(const client::Group& group, const ExpertTokens& tokens,
                  const std::vector<RouteSummary>& summaries, ExpertForm wanted) {
  if (wanted != ExpertForm::kAuto) return wanted;
  if (tokens.hidden.device().is_cuda()) return ExpertForm::kGathered;
  const bool one_host =
      std::all_of(group.hosts().begin(), group.hosts().end(),
                  [&](const std::string& host) { return host == group.hosts()[0]; });
  if (!one_host) return ExpertForm::kRouted;
  ExchangeShape shape;
  shape.ranks = group.size();
  shape.tokens = SumOf(Column(summaries, kTokens));
  shape.routed_rows = SumOf(Column(summaries, kAllRows));
  shape.combine_row_bytes = RowBytes(tokens.hidden);
  shape.row_bytes = shape.combine_row_bytes + RowBytes(tokens.extras) +
                    LabelWidth(tokens.ids.shape()[1]) * SizeOf(DataType::kI32);
  return RoutedBytes(shape) <= GatheredBytes(shape) ? ExpertForm::kRouted : ExpertForm::kGathered;
}

// The tensors that a rank sends: rows in order, and their labels last.
absl::StatusOr<std::vector<Tensor>> Outgoing(client::Group& group, const ExpertTokens& tokens,
                                             const Tensor& ids, const Tensor& weights,
                                             const ExpertPlacement& placement,
                                             const RoutePlan& plan, bool gathered,
                                             const client::CallDeadline& deadline) {
  std::vector<Tensor> outgoing = {tokens.hidden};
  outgoing.insert(outgoing.end(), tokens.extras.begin(), tokens.extras.end());
  const int64_t rows = gathered ? ids.shape()[0] : static_cast<int64_t>(plan.tokens.size());
  if (!gathered) {
    for (Tensor& tensor : outgoing) {
      Shape shape = tensor.shape();
      shape[0] = rows;
      COHORT_ASSIGN_OR_RETURN(const Tensor ordered,
                              Allocate(group, tensor.type(), shape, tensor.device()));
      COHORT_RETURN_IF_ERROR(TakeRows(group, tensor, plan.tokens, ordered, deadline.Left()));
      tensor = ordered;
    }
  }
  COHORT_ASSIGN_OR_RETURN(const Tensor labels,
                          Allocate(group, DataType::kI32, {rows, LabelWidth(ids.shape()[1])}));
  if (gathered) {
    WriteLabels(ids, weights, labels);
  } else {
    WriteLabels(plan, ids, weights, placement, labels);
  }
  COHORT_ASSIGN_OR_RETURN(Tensor there,
                          OnDevice(group, labels, CommonDevice(group), deadline.Left()));
  outgoing.push_back(std::move(there));
  return outgoing;
}

// Allocates the places into which `labels` will be read, before the others go on.
absl::Status MakeRoom(client::Group& group, const ExpertTokens& tokens, const ExpertRoutes& routes,
                      ExpertBatch& batch) {
  const Device device = tokens.hidden.device();
  const Shape shape = {SumOf(routes.received), tokens.ids.shape()[1]};
  COHORT_ASSIGN_OR_RETURN(batch.ids, Allocate(group, DataType::kI32, shape, device));
  COHORT_ASSIGN_OR_RETURN(batch.weights, Allocate(group, DataType::kF32, shape, device));
  return absl::OkStatus();
}

// Reads the labels into the batch for this rank's experts and the routes of the way back.
absl::Status ReadBatch(client::Group& group, const Tensor& labels, const ExpertPlacement& placement,
                       ExpertRoutes& routes, ExpertBatch& batch,
                       const client::CallDeadline& deadline) {
  const bool on_host = batch.ids.device().is_host();
  const bool gathered = batch.form == ExpertForm::kGathered;
  COHORT_ASSIGN_OR_RETURN(const Tensor host, OnHost(group, labels, deadline.Left()));
  const Shape& shape = batch.ids.shape();
  const Tensor ids = on_host ? batch.ids : Tensor::Uninitialized(DataType::kI32, shape);
  const Tensor weights = on_host ? batch.weights : Tensor::Uninitialized(DataType::kF32, shape);
  COHORT_ASSIGN_OR_RETURN(ReceivedLabels received,
                          ReadLabels(host, gathered, placement, group.rank(), ids, weights));
  if (!on_host) {
    const client::TensorCopy copies[] = {{ids, batch.ids}, {weights, batch.weights}};
    COHORT_RETURN_IF_ERROR(group.CopyAll(copies, deadline.Left()));
  }
  batch.row_counts = std::move(received.row_counts);
  batch.by_expert = std::move(received.by_expert);
  routes.weights = std::move(received.weights);
  routes.places = std::move(received.tokens);
  int64_t offset = 0;
  size_t row = 0;
  for (size_t rank = 0; rank < routes.received.size(); ++rank) {
    for (int64_t i = 0; i < routes.received[rank]; ++i) routes.places[row++] += offset;
    offset += routes.tokens[rank];
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExpertBatch> DispatchToExperts(client::Group& group, const ExpertTokens& tokens,
                                              const ExpertPlacement& placement,
                                              const ExpertDispatchOptions& options) {
  const client::CallDeadline deadline(options.call);
  Tensor ids;
  Tensor weights;
  auto routes = std::make_shared<ExpertRoutes>();
  const auto plan = [&]() -> absl::Status {
    COHORT_RETURN_IF_ERROR(CheckTokens(group, tokens, placement, options.call));
    COHORT_ASSIGN_OR_RETURN(ids, OnHost(group, tokens.ids, deadline.Left()));
    COHORT_ASSIGN_OR_RETURN(weights, OnHost(group, tokens.weights, deadline.Left()));
    COHORT_ASSIGN_OR_RETURN(routes->sent, PlanRoutes(ids, placement));
    return absl::OkStatus();
  };
  const absl::Status planned = plan();
  if (!planned.ok()) return group.FailCollective(planned, deadline.LeftOnHost());

  const std::string description = Describe(tokens, placement, options.form);
  const auto text = [&description] { return description; };
  const Meaning meaning = {FingerprintOf(description), text};
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<RouteSummary> summaries,
      ExchangeRouteSummaries(group, routes->sent, ids.shape()[0], meaning.fingerprint, deadline));
  for (const RouteSummary& one : summaries) {
    if (one[kMeans] != summaries[0][kMeans]) return ExplainDifference(group, meaning, deadline);
  }
  ExpertBatch batch;
  batch.form = Choose(group, tokens, summaries, options.form);
  const bool gathered = batch.form == ExpertForm::kGathered;
  routes->rank = group.rank();
  routes->tokens = Column(summaries, kTokens);
  routes->received = gathered ? routes->tokens : Column(summaries, kRows);

  const absl::StatusOr<std::vector<Tensor>> outgoing =
      Outgoing(group, tokens, ids, weights, placement, routes->sent, gathered, deadline);
  if (!outgoing.ok()) return group.FailCollective(outgoing.status(), deadline.Left());
  const absl::Status room = MakeRoom(group, tokens, *routes, batch);
  if (!room.ok()) return group.FailCollective(room, deadline.Left());
  std::vector<const Tensor*> tensors;
  for (const Tensor& tensor : *outgoing) tensors.push_back(&tensor);
  const auto exchange = [&] {
    return gathered ? GatherRows(group, tensors, routes->tokens, meaning, /*agreed=*/true, deadline)
                    : ExchangeRows(group, *outgoing, routes->sent.rows, routes->received,
                                   SumOf(Column(summaries, kAllRows)), deadline);
  };
  COHORT_ASSIGN_OR_RETURN(std::vector<Tensor> came, exchange());
  const Tensor labels = std::move(came.back());
  came.pop_back();
  batch.hidden = std::move(came.front());
  batch.extras.assign(came.begin() + 1, came.end());
  COHORT_RETURN_IF_ERROR(ReadBatch(group, labels, placement, *routes, batch, deadline));
  batch.routes = std::move(routes);
  return batch;
}

}  // namespace cohort::parallel
