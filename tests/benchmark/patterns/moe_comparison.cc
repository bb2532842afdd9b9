// Dispatch and combine of a layer's tokens, compared with the ragged collectives called by hand
// into existing tensors.
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "client/parallel/moe/dispatch.h"
#include "tests/benchmark/patterns/comparisons.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kHidden = 1024;
constexpr int64_t kExperts = 64;
constexpr int64_t kTokens[] = {1, 16, 256, 2048};  // of each rank but the last

// The tensors of a layer on this rank.
struct Layer {
  client::Sizes sizes;
  Tensor hidden;  // [n, H]
  Tensor logits;  // [n, E]
  Tensor all_hidden;
  Tensor all_logits;
  Tensor combined;
};

absl::StatusOr<std::shared_ptr<Layer>> MakeLayer(client::Group& group, int64_t tokens) {
  auto layer = std::make_shared<Layer>();
  layer->sizes.assign(static_cast<size_t>(group.size()), tokens);
  layer->sizes.back() = tokens / 2;
  int64_t all = 0;
  for (const int64_t size : layer->sizes) all += size;
  const int64_t own = layer->sizes[static_cast<size_t>(group.rank())];
  const auto make = [&](int64_t rows, int64_t columns) {
    return group.Allocate(DataType::kBF16, {rows, columns});
  };
  COHORT_ASSIGN_OR_RETURN(layer->hidden, make(own, kHidden));
  COHORT_ASSIGN_OR_RETURN(layer->logits, make(own, kExperts));
  COHORT_ASSIGN_OR_RETURN(layer->all_hidden, make(all, kHidden));
  COHORT_ASSIGN_OR_RETURN(layer->all_logits, make(all, kExperts));
  COHORT_ASSIGN_OR_RETURN(layer->combined, make(own, kHidden));
  const Tensor zeros = Tensor::Zeros(DataType::kBF16, {own, kHidden});
  COHORT_RETURN_IF_ERROR(CopyTensor(zeros, layer->hidden));
  COHORT_RETURN_IF_ERROR(
      CopyTensor(Tensor::Zeros(DataType::kBF16, {own, kExperts}), layer->logits));
  return layer;
}

absl::Status ByDispatch(client::Group& group, const Layer& layer) {
  parallel::TokenBatch batch;
  batch.hidden = layer.hidden;
  batch.companions = {layer.logits};
  parallel::DispatchOptions options;
  options.sizes = layer.sizes;
  COHORT_ASSIGN_OR_RETURN(const parallel::DispatchedBatch all,
                          parallel::Dispatch(group, batch, options));
  return parallel::Combine(group, all.hidden, layer.sizes).status();
}

absl::Status ByHand(client::Group& group, const Layer& layer) {
  COHORT_RETURN_IF_ERROR(group.AllGatherV(layer.hidden, layer.all_hidden, 0, layer.sizes));
  COHORT_RETURN_IF_ERROR(group.AllGatherV(layer.logits, layer.all_logits, 0, layer.sizes));
  return group.ReduceScatterV(layer.all_hidden, layer.combined, 0, layer.sizes, {ReduceOp::kSum});
}

}  // namespace

absl::StatusOr<std::vector<Comparison>> MoeComparisons(client::Group& group) {
  std::vector<Comparison> comparisons;
  for (const int64_t tokens : kTokens) {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, MakeLayer(group, tokens));
    Comparison comparison;
    comparison.pattern = "dispatch_combine";
    comparison.parameters = {{"tokens", tokens}, {"hidden", kHidden}, {"experts", kExperts}};
    comparison.implementations = {{"cohort", [&group, layer] { return ByDispatch(group, *layer); }},
                                  {"by_hand", [&group, layer] { return ByHand(group, *layer); }}};
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

}  // namespace cohort::benchmark
