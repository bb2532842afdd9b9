// CombineFromExperts: the way back of expert_dispatch.h.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/data_type.h"
#include "client/collective/call_deadline.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/moe/expert_dispatch.h"
#include "client/parallel/moe/expert_routes.h"
#include "client/parallel/moe/rows/packed_rows.h"
#include "client/parallel/moe/rows/row_moves.h"
#include "client/parallel/moe/rows/row_sums.h"

namespace cohort::parallel {
namespace {

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

absl::Status CheckOutputs(const client::Group& group, const ExpertBatch& batch,
                          const Tensor& outputs, const ExpertCombineOptions& options) {
  if (options.call.stream.has_value()) {
    return Bad("combining experts' outputs cannot run on a stream");
  }
  if (batch.routes == nullptr) return Bad("the batch did not come from a dispatch");
  if (static_cast<int>(batch.routes->tokens.size()) != group.size() ||
      batch.routes->rank != group.rank()) {
    return Bad(absl::StrCat("the batch is of rank ", batch.routes->rank, " of ",
                            batch.routes->tokens.size(), " ranks"));
  }
  const bool weigh = options.weights == WeightsBy::kCombine;
  const auto rows =
      static_cast<int64_t>(weigh ? batch.by_expert.size() : batch.routes->places.size());
  if (!IsFloating(outputs.type()) || outputs.dims() == 0 || outputs.shape()[0] != rows) {
    return Bad(absl::StrCat("outputs are ", outputs.ToString(),
                            ", and not of a floating type with ", rows, " rows, one for each ",
                            weigh ? "row of an expert" : "row of the batch"));
  }
  if (weigh && outputs.device().is_cuda()) {
    return absl::UnimplementedError(
        "rows are not weighted on GPUs: let experts do it (WeightsBy::kExperts), or use Dispatch "
        "and Combine, which gather and reduce-scatter");
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> AllocateRows(client::Group& group, const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape[0] = rows;
  return Allocate(group, like.type(), shape, like.device());
}

// This rank's part of each received row.
absl::StatusOr<Tensor> Weighted(client::Group& group, const ExpertBatch& batch,
                                const Tensor& outputs) {
  const auto rows = static_cast<int64_t>(batch.routes->places.size());
  std::vector<int64_t> row_of;
  row_of.reserve(batch.by_expert.size());
  for (const ExpertRow& one : batch.by_expert) row_of.push_back(one.row);
  COHORT_ASSIGN_OR_RETURN(const Tensor parts, AllocateRows(group, outputs, rows));
  SumRows(Packed(outputs), TermsOf(row_of, rows, batch.routes->weights), parts);
  return parts;
}

struct Prepared {
  Tensor input;   // of the exchange
  Tensor output;  // of the exchange
  Tensor result;
};

}  // namespace

absl::StatusOr<Tensor> CombineFromExperts(client::Group& group, const ExpertBatch& batch,
                                          const Tensor& outputs,
                                          const ExpertCombineOptions& options) {
  const client::CallDeadline deadline(options.call);
  const bool routed = batch.form == ExpertForm::kRouted;
  const bool home = routed && outputs.device().is_host();  // rows go back to their source rank
  const auto prepare = [&]() -> absl::StatusOr<Prepared> {
    COHORT_RETURN_IF_ERROR(CheckOutputs(group, batch, outputs, options));
    const ExpertRoutes& routes = *batch.routes;
    Prepared prepared;
    prepared.input = outputs;
    if (options.weights == WeightsBy::kCombine) {
      COHORT_ASSIGN_OR_RETURN(prepared.input, Weighted(group, batch, outputs));
    }
    if (routed && !home) {
      COHORT_ASSIGN_OR_RETURN(const Tensor all, AllocateRows(group, outputs, SumOf(routes.tokens)));
      COHORT_RETURN_IF_ERROR(PlaceRows(group, prepared.input, routes.places, all, deadline.Left()));
      prepared.input = all;
    }
    const int64_t own = routes.tokens[static_cast<size_t>(group.rank())];
    COHORT_ASSIGN_OR_RETURN(prepared.result, AllocateRows(group, outputs, own));
    prepared.output = prepared.result;
    if (home) {
      const auto rows = static_cast<int64_t>(routes.sent.tokens.size());
      COHORT_ASSIGN_OR_RETURN(prepared.output, AllocateRows(group, outputs, rows));
    }
    return prepared;
  };
  const absl::StatusOr<Prepared> prepared = prepare();
  if (!prepared.ok()) {
    return group.FailCollectiveAs(prepared.status(), deadline.LeftOnHost());
  }
  const ExpertRoutes& routes = *batch.routes;
  if (!home) {
    COHORT_RETURN_IF_ERROR(group.ReduceScatterV(prepared->input, prepared->output, 0, routes.tokens,
                                                Reduction{}, deadline.Left()));
    return prepared->result;
  }
  COHORT_RETURN_IF_ERROR(group.AllToAllV(prepared->input, routes.received, prepared->output,
                                         routes.sent.rows, deadline.Left()));
  SumRows(prepared->output, TermsOf(routes.sent.tokens, prepared->result.shape()[0]),
          prepared->result);
  return prepared->result;
}

}  // namespace cohort::parallel
