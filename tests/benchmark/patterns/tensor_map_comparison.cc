// A map of many tensors, compared with each tensor sent by itself into existing memory.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/tensor_map/send_receive.h"
#include "client/parallel/tensor_map/tensor_map.h"
#include "tests/benchmark/patterns/comparisons.h"

namespace cohort::benchmark {
namespace {

constexpr int kTensors = 100;
constexpr int64_t kBytes[] = {64, 4096, 65536};  // of each

struct Tables {
  explicit Tables(client::Group& group) : messages(group) {}

  parallel::Messages messages;
  std::vector<Tensor> tensors;
  parallel::TensorMap map;
};

absl::Status AsAMap(client::Group& group, Tables& tables) {
  if (group.rank() == 0) return parallel::SendTensorMap(tables.messages, tables.map);
  return parallel::ReceiveTensorMap(tables.messages).status();
}

absl::Status OneByOne(client::Group& group, const Tables& tables) {
  for (const Tensor& tensor : tables.tensors) {
    COHORT_RETURN_IF_ERROR(group.rank() == 0 ? group.Send(tensor, 1) : group.Receive(tensor, 0));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Comparison>> TensorMapComparisons(client::Group& group) {
  std::vector<Comparison> comparisons;
  for (const int64_t bytes : kBytes) {
    auto tables = std::make_shared<Tables>(group);
    for (int i = 0; i < kTensors; ++i) {
      COHORT_ASSIGN_OR_RETURN(const Tensor tensor, group.Allocate(DataType::kF32, {bytes / 4}));
      COHORT_RETURN_IF_ERROR(CopyTensor(Tensor::Zeros(DataType::kF32, {bytes / 4}), tensor));
      tables->tensors.push_back(tensor);
      tables->map.Set(absl::StrCat("layers.", i, ".weight"), tensor);
    }
    Comparison comparison;
    comparison.pattern = "tensor_map";
    comparison.parameters = {{"tensors", kTensors}, {"bytes", bytes}};
    comparison.implementations = {
        {"cohort", [&group, tables] { return AsAMap(group, *tables); }},
        {"single_sends", [&group, tables] { return OneByOne(group, *tables); }}};
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

}  // namespace cohort::benchmark
