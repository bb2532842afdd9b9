// A step of a pipeline whose shapes change from step to step, compared with two messages by hand:
// the shape, and then the tensor.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/pipeline/pipeline.h"
#include "tests/benchmark/patterns/comparisons.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kBytes[] = {1024, 16384, 262144, int64_t{4} << 20, int64_t{16} << 20};

// Type, number of dimensions, extents.
using Meta = std::array<int64_t, 8>;

struct Stage {
  explicit Stage(client::Group& group) : messages(group), pipeline(messages) {}

  // The next step's.
  const Tensor& Output() { return outputs[step++ % outputs.size()]; }

  parallel::Messages messages;
  parallel::Pipeline pipeline;
  std::vector<Tensor> outputs;  // of different shapes
  size_t step = 0;
  Meta meta = {};
};

absl::Status ByPipeline(client::Group& group, Stage& stage) {
  if (group.rank() == 0) return stage.pipeline.SendForward({stage.Output()});
  return stage.pipeline.RecvForward().status();
}

absl::Status ByTwoMessages(client::Group& group, Stage& stage) {
  const Tensor meta(stage.meta.data(), DataType::kI64, {static_cast<int64_t>(stage.meta.size())});
  if (group.rank() == 0) {
    const Tensor& output = stage.Output();
    stage.meta = {static_cast<int64_t>(output.type()), output.dims()};
    for (int i = 0; i < output.dims(); ++i) {
      stage.meta[static_cast<size_t>(2 + i)] = output.shape()[static_cast<size_t>(i)];
    }
    COHORT_RETURN_IF_ERROR(group.Send(meta, 1));
    return group.Send(output, 1);
  }
  COHORT_RETURN_IF_ERROR(group.Receive(meta, 0));
  const Shape shape(stage.meta.begin() + 2, stage.meta.begin() + 2 + stage.meta[1]);
  COHORT_ASSIGN_OR_RETURN(const Tensor input,
                          group.Allocate(static_cast<DataType>(stage.meta[0]), shape));
  return group.Receive(input, 0);
}

}  // namespace

absl::StatusOr<std::vector<Comparison>> PipelineComparisons(client::Group& group) {
  std::vector<Comparison> comparisons;
  for (const int64_t bytes : kBytes) {
    auto stage = std::make_shared<Stage>(group);
    const int64_t rows = bytes / 2 / 128;
    for (const Shape& shape : {Shape{rows, 128}, Shape{rows / 2, 2, 128}, Shape{rows - 1, 128}}) {
      COHORT_ASSIGN_OR_RETURN(const Tensor tensor, group.Allocate(DataType::kBF16, shape));
      COHORT_RETURN_IF_ERROR(CopyTensor(Tensor::Zeros(DataType::kBF16, shape), tensor));
      stage->outputs.push_back(tensor);
    }
    Comparison comparison;
    comparison.pattern = "pipeline_step";
    comparison.parameters = {{"bytes", bytes}};
    comparison.implementations = {
        {"cohort", [&group, stage] { return ByPipeline(group, *stage); }},
        {"two_messages", [&group, stage] { return ByTwoMessages(group, *stage); }}};
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

}  // namespace cohort::benchmark
