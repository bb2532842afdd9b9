// All ranks get the error of a collective that one rank calls wrongly, and the group goes on.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/collectives/collectives.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/collective_rounds.h"

namespace cohort::parallel {
namespace {

using ::cohort::testing::FormName;
using ::testing::HasSubstr;

class WrongCollectivesTest : public cohort::testing::CollectivesTest {};

// A right and a wrong way to call a collective; the error of the wrong one has `says`.
struct WrongCall {
  std::string says;
  std::function<absl::Status(client::Group&, const Tensor&)> right;
  std::function<absl::Status(client::Group&, const Tensor&)> wrong;
};

// Inputs are so large that no rank goes on without the others, as it may in a small broadcast.
const Shape kWrongShape = {4, 6 << 10};

std::vector<WrongCall> WrongCalls() {
  const auto all_reduce = [](client::Group& group, const Tensor& tensor) {
    return AllReduce(group, tensor).status();
  };
  const auto all_gather = [](client::Group& group, const Tensor& tensor) {
    return AllGather(group, tensor, {.dim = 0}).status();
  };
  const auto reduce_scatter = [](client::Group& group, const Tensor& tensor) {
    return ReduceScatter(group, tensor, {.dim = 0}).status();
  };
  const auto all_to_all = [](client::Group& group, const Tensor& tensor) {
    return AllToAll(group, tensor).status();
  };
  const auto all_gather_v = [](client::Group& group, const Tensor& tensor) {
    return AllGatherV(group, tensor, {.sizes = Sizes(static_cast<size_t>(group.size()), 4)})
        .status();
  };
  const auto part = [](const Tensor& tensor) { return tensor.Narrow(0, 0, 3).value(); };
  const auto one = [](const Tensor& tensor) {
    return Tensor(tensor.data(), tensor.type(), {}, tensor.owner(), tensor.device());
  };
  const auto scatter = [](client::Group& group, const Tensor& tensor) {
    if (group.rank() == 0) return Scatter(group, tensor).status();
    TensorSpec spec = SpecOf(tensor);
    spec.shape[0] /= group.size();
    return Scatter(group, spec).status();
  };
  return {
      {"no dimension 2", all_gather,
       [](client::Group& group, const Tensor& tensor) {
         return AllGather(group, tensor, {.dim = 2}).status();
       }},
      {"no dimension -3", reduce_scatter,
       [](client::Group& group, const Tensor& tensor) {
         return ReduceScatter(group, tensor, {.dim = -3}).status();
       }},
      {"of a single element", all_gather,
       [=](client::Group& group, const Tensor& tensor) { return all_gather(group, one(tensor)); }},
      {"is not a multiple of", reduce_scatter,
       [=](client::Group& group, const Tensor& tensor) {
         return reduce_scatter(group, part(tensor));
       }},
      {"is not a multiple of", all_to_all,
       [=](client::Group& group, const Tensor& tensor) { return all_to_all(group, part(tensor)); }},
      {"root -1 is not in",
       [](client::Group& group, const Tensor& tensor) { return Reduce(group, tensor).status(); },
       [](client::Group& group, const Tensor& tensor) {
         return Reduce(group, tensor, {.root = -1}).status();
       }},
      {"root 9 is not in",
       [](client::Group& group, const Tensor& tensor) { return Broadcast(group, tensor).status(); },
       [](client::Group& group, const Tensor& tensor) {
         return Broadcast(group, tensor, {.root = 9}).status();
       }},
      {"root -1 is not in",
       [](client::Group& group, const Tensor& tensor) { return Gather(group, tensor).status(); },
       [](client::Group& group, const Tensor& tensor) {
         return Gather(group, tensor, {.root = -1}).status();
       }},
      {"root 9 is not in", scatter,
       [](client::Group& group, const Tensor& tensor) {
         return Scatter(group, SpecOf(tensor), {.root = 9}).status();
       }},
      {"than can be counted", scatter,
       [](client::Group& group, const Tensor&) {
         return Scatter(group, TensorSpec{DataType::kF32, {int64_t{1} << 32, int64_t{1} << 32}})
             .status();
       }},
      {"than can be counted", all_gather,
       [](client::Group& group, const Tensor& tensor) {
         const Tensor none(nullptr, tensor.type(), {0, int64_t{1} << 40, int64_t{1} << 40}, nullptr,
                           tensor.device());
         return AllGather(group, none, {.dim = 0}).status();
       }},
      {"is not the root", scatter,
       [](client::Group& group, const Tensor& tensor) { return Scatter(group, tensor).status(); }},
      {"the root, rank ",
       [](client::Group& group, const Tensor& tensor) { return Broadcast(group, tensor).status(); },
       [](client::Group& group, const Tensor& tensor) {
         return Broadcast(group, SpecOf(tensor), {.root = group.rank()}).status();
       }},
      {"bit_and", all_reduce,
       [](client::Group& group, const Tensor& tensor) {
         return AllReduce(group, tensor, {.reduction = {ReduceOp::kBitAnd}}).status();
       }},
      // Equal sizes are checked as closely as others.
      {"the size of this rank is 4", all_gather_v,
       [=](client::Group& group, const Tensor& tensor) {
         return all_gather_v(group, part(tensor));
       }},
      {"for ", all_gather_v,
       [](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, tensor, {.sizes = Sizes{4}}).status();
       }},
      {"negative", all_gather_v,
       [](client::Group& group, const Tensor& tensor) {
         Sizes sizes(static_cast<size_t>(group.size()), 4);
         sizes[0] = -4;
         return AllGatherV(group, tensor, {.sizes = sizes}).status();
       }},
      {"the sum of the sizes is",
       [](client::Group& group, const Tensor& tensor) {
         return ReduceScatterV(
                    group, tensor,
                    {.dim = 0, .sizes = Sizes(static_cast<size_t>(group.size()), 4 / group.size())})
             .status();
       },
       [](client::Group& group, const Tensor& tensor) {
         return ReduceScatterV(group, tensor,
                               {.dim = 0, .sizes = Sizes(static_cast<size_t>(group.size()), 3)})
             .status();
       }},
      {"no dimension 5",
       [](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, tensor).status();
       },
       [](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, tensor, {.dim = 5}).status();
       }},
      {"tensors",
       [](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, absl::MakeConstSpan(&tensor, 1)).status();
       },
       [](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, {tensor, tensor}).status();
       }},
      {"of a list along",
       [](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, absl::MakeConstSpan(&tensor, 1)).status();
       },
       [=](client::Group& group, const Tensor& tensor) {
         return AllGatherV(group, {tensor, part(tensor)}).status();
       }},
      // Mistakes that one rank's arguments do not show.
      {"", all_reduce,
       [=](client::Group& group, const Tensor& tensor) { return all_reduce(group, part(tensor)); }},
      {"", all_reduce,
       [](client::Group& group, const Tensor& tensor) {
         return AllReduce(group, tensor, {.reduction = {ReduceOp::kMax}}).status();
       }},
      {"", all_gather,
       [](client::Group& group, const Tensor& tensor) {
         const Tensor other(tensor.data(), DataType::kI32, tensor.shape(), tensor.owner(),
                            tensor.device());
         return AllGather(group, other, {.dim = 0}).status();
       }},
      {"", all_gather,
       [](client::Group& group, const Tensor& tensor) {
         return AllGather(group, tensor, {.dim = 1}).status();
       }},
      {"", all_gather, all_to_all},
      {"expects",
       [](client::Group& group, const Tensor& tensor) { return AllToAllV(group, tensor).status(); },
       [](client::Group& group, const Tensor& tensor) {
         Sizes sizes(static_cast<size_t>(group.size()), 0);
         sizes[0] = 4;
         return AllToAllV(group, tensor, {.input_sizes = sizes}).status();
       }},
  };
}

TEST_P(WrongCollectivesTest, OneRanksMistakeFailsOnAllRanks) {
  for (const int size : {2, 4}) {
    MakeGroup(size);
    const std::vector<WrongCall> calls = WrongCalls();
    for (size_t i = 0; i < calls.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("call ", i, ": ", calls[i].says));
      const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
        const Tensor tensor = Upload(group, Tensor::Zeros(DataType::kF32, kWrongShape));
        const bool is_wrong = group.rank() == group.size() - 1;
        return (is_wrong ? calls[i].wrong : calls[i].right)(group, tensor);
      });
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(calls[i].says));
      }
      // And the group goes on.
      RunAny(static_cast<uint32_t>(i));
      if (HasFailure()) return;
    }
  }
}

TEST_P(WrongCollectivesTest, AMistakeOfAllRanksFailsOnAllRanks) {
  for (const int size : {2, 4}) {
    MakeGroup(size);
    for (const WrongCall& call : WrongCalls()) {
      // Skips calls that are right if all ranks make them, and those whose error needs ranks that
      // differ.
      if (call.says.empty() || call.says == "tensors" || call.says == "expects") continue;
      SCOPED_TRACE(call.says);
      for (const absl::Status& status : OnRanks([&](client::Group& group) {
             return call.wrong(group, Upload(group, Tensor::Zeros(DataType::kF32, kWrongShape)));
           })) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(call.says));
      }
    }
    RunAny(static_cast<uint32_t>(size));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, WrongCollectivesTest, ::testing::ValuesIn(cohort::testing::kForms),
                         FormName);

}  // namespace
}  // namespace cohort::parallel
