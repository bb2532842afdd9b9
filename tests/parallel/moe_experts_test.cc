// Tokens go to their experts and back, compared with a process that has all experts. All numbers
// are small enough that every type holds them and their sums exactly, so that results are compared
// by bits. One file, though long: all cases compare with one model.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/tensor/small_float.h"
#include "base/testing/random_tensor.h"
#include "client/parallel/moe/expert_dispatch.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/local_group.h"

namespace cohort::testing {
namespace {

using parallel::ExpertBatch;
using parallel::ExpertCombineOptions;
using parallel::ExpertDispatchOptions;
using parallel::ExpertForm;
using parallel::ExpertPlacement;
using parallel::ExpertRow;
using parallel::ExpertTokens;
using parallel::WeightsBy;

using ::testing::HasSubstr;

using Row = std::vector<float>;

Tensor FromFloats(DataType type, const Shape& shape, const std::vector<float>& numbers) {
  Tensor tensor = Tensor::Uninitialized(type, shape);
  for (size_t i = 0; i < numbers.size(); ++i) {
    switch (type) {
      case DataType::kF16:
        static_cast<uint16_t*>(tensor.data())[i] = F16FromFloat(numbers[i]);
        break;
      case DataType::kBF16:
        static_cast<uint16_t*>(tensor.data())[i] = BF16FromFloat(numbers[i]);
        break;
      case DataType::kF64:
        static_cast<double*>(tensor.data())[i] = numbers[i];
        break;
      default:
        static_cast<float*>(tensor.data())[i] = numbers[i];
    }
  }
  return tensor;
}

std::vector<float> ToFloats(const Tensor& tensor) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < tensor.count(); ++i) {
    switch (tensor.type()) {
      case DataType::kF16:
        numbers.push_back(FloatFromF16(static_cast<const uint16_t*>(tensor.data())[i]));
        break;
      case DataType::kBF16:
        numbers.push_back(FloatFromBF16(static_cast<const uint16_t*>(tensor.data())[i]));
        break;
      case DataType::kF64:
        numbers.push_back(static_cast<float>(static_cast<const double*>(tensor.data())[i]));
        break;
      default:
        numbers.push_back(static_cast<const float*>(tensor.data())[i]);
    }
  }
  return numbers;
}

template <typename Number>
std::vector<Number> Numbers(const Tensor& tensor) {
  const auto* const data = static_cast<const Number*>(tensor.data());
  return std::vector<Number>(data, data + tensor.count());
}

// Expert e: a matrix of -1, 0 and 1.
Row Apply(int64_t expert, const Row& x) {
  Row y(x.size(), 0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) {
      y[i] += x[j] * static_cast<float>((static_cast<size_t>(expert) + 3 * i + 5 * j) % 3) - x[j];
    }
  }
  return y;
}

// One step of a model, as one process sees it.
struct Step {
  int64_t columns = 0;
  int64_t slots = 0;
  int64_t experts = 0;
  std::vector<int> rank_of_expert;
  std::vector<int64_t> tokens;              // by rank
  std::vector<std::vector<Row>> hidden;     // by rank, by token
  std::vector<std::vector<int64_t>> ids;    // by rank: [tokens, slots]
  std::vector<std::vector<float>> weights;  // alike

  Row Expected(size_t rank, int64_t token) const {
    Row sum(static_cast<size_t>(columns), 0);
    for (int64_t slot = 0; slot < slots; ++slot) {
      const auto at = static_cast<size_t>(token * slots + slot);
      if (ids[rank][at] < 0) continue;
      const Row y = Apply(ids[rank][at], hidden[rank][static_cast<size_t>(token)]);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += weights[rank][at] * y[i];
    }
    return sum;
  }
};

enum class Load { kEven, kOneRank, kNobody };

Step RandomStep(int ranks, Load load, std::mt19937& random) {
  Step step;
  step.columns = 1 + static_cast<int64_t>(random() % 4);
  step.slots = 1 + static_cast<int64_t>(random() % 4);
  step.experts = step.slots + static_cast<int64_t>(random() % 9);
  for (int64_t expert = 0; expert < step.experts; ++expert) {
    step.rank_of_expert.push_back(load == Load::kOneRank
                                      ? ranks - 1
                                      : static_cast<int>(random() % static_cast<uint32_t>(ranks)));
  }
  std::vector<int64_t> order(static_cast<size_t>(step.experts));
  std::iota(order.begin(), order.end(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto tokens = static_cast<int64_t>(random() % 4 == 0 ? 0 : random() % 30);
    step.tokens.push_back(tokens);
    step.hidden.emplace_back();
    step.ids.emplace_back();
    step.weights.emplace_back();
    for (int64_t token = 0; token < tokens; ++token) {
      Row row;
      for (int64_t i = 0; i < step.columns; ++i)
        row.push_back(static_cast<float>(random() % 3) - 1);
      step.hidden.back().push_back(std::move(row));
      std::shuffle(order.begin(), order.end(), random);
      for (int64_t slot = 0; slot < step.slots; ++slot) {
        const bool none = load == Load::kNobody || random() % 5 == 0;
        step.ids.back().push_back(none ? -1 : order[static_cast<size_t>(slot)]);
        step.weights.back().push_back(random() % 2 == 0 ? 0.5f : 1.0f);
      }
    }
  }
  return step;
}

class MoeExpertsTest : public ParallelTest {
 protected:
  // The same elements, column by column on every second rank.
  Tensor UploadInSomeLayout(client::Group& group, const Tensor& host) {
    if (group.rank() % 2 == 0) return Upload(group, host);
    return Upload(group, Packed(host.Permute({1, 0}))).Permute({1, 0});
  }

  // This rank's tokens; with each an extra that says which it is.
  ExpertTokens TokensOf(client::Group& group, const Step& step, DataType type, DataType id_type) {
    const auto rank = static_cast<size_t>(group.rank());
    const int64_t count = step.tokens[rank];
    std::vector<float> hidden;
    for (const Row& row : step.hidden[rank]) hidden.insert(hidden.end(), row.begin(), row.end());
    const Tensor ids = Tensor::Uninitialized(id_type, {count, step.slots});
    for (size_t i = 0; i < step.ids[rank].size(); ++i) {
      if (id_type == DataType::kI64) {
        static_cast<int64_t*>(ids.data())[i] = step.ids[rank][i];
      } else {
        static_cast<int32_t*>(ids.data())[i] = static_cast<int32_t>(step.ids[rank][i]);
      }
    }
    const Tensor names = Tensor::Uninitialized(DataType::kI64, {count});
    for (int64_t i = 0; i < count; ++i) {
      static_cast<int64_t*>(names.data())[i] = static_cast<int64_t>(rank) * 1000 + i;
    }
    ExpertTokens tokens;
    tokens.hidden = UploadInSomeLayout(group, FromFloats(type, {count, step.columns}, hidden));
    tokens.ids = UploadInSomeLayout(group, ids);
    tokens.weights = UploadInSomeLayout(
        group, FromFloats(DataType::kF32, {count, step.slots}, step.weights[rank]));
    tokens.extras.push_back(Upload(group, names));
    return tokens;
  }

  // The batch has exactly the rows that this rank's experts need, or all, in order.
  void ExpectRows(client::Group& group, const Step& step, const ExpertPlacement& placement,
                  const ExpertBatch& batch) {
    const std::vector<float> hidden = ToFloats(Download(group, batch.hidden));
    const auto ids = Numbers<int32_t>(Download(group, batch.ids));
    const auto weights = Numbers<float>(Download(group, batch.weights));
    const auto names = Numbers<int64_t>(Download(group, batch.extras[0]));
    std::vector<int64_t> counts(static_cast<size_t>(placement.CountOf(group.rank())), 0);
    size_t row = 0;
    for (size_t from = 0; from < step.tokens.size(); ++from) {
      for (int64_t token = 0; token < step.tokens[from]; ++token) {
        std::vector<int32_t> its(static_cast<size_t>(step.slots), -1);
        Row its_weights(its.size(), 0);
        bool needed = batch.form == ExpertForm::kGathered;
        for (size_t slot = 0; slot < its.size(); ++slot) {
          const size_t at = static_cast<size_t>(token) * its.size() + slot;
          const int64_t expert = step.ids[from][at];
          if (expert < 0 || placement.RankOf(expert) != group.rank()) continue;
          needed = true;
          its[slot] = placement.LocalOf(expert);
          its_weights[slot] = step.weights[from][at];
          ++counts[static_cast<size_t>(its[slot])];
        }
        if (!needed) continue;
        ASSERT_LT(row, names.size());
        EXPECT_EQ(names[row], static_cast<int64_t>(from) * 1000 + token);
        const auto slot = static_cast<std::ptrdiff_t>(row * its.size());
        const auto slots = static_cast<std::ptrdiff_t>(its.size());
        EXPECT_TRUE(std::equal(its.begin(), its.end(), ids.begin() + slot));
        EXPECT_TRUE(std::equal(its_weights.begin(), its_weights.end(), weights.begin() + slot));
        EXPECT_EQ(slots, step.slots);
        const Row& x = step.hidden[from][static_cast<size_t>(token)];
        EXPECT_TRUE(std::equal(x.begin(), x.end(),
                               hidden.begin() + static_cast<std::ptrdiff_t>(row * x.size())));
        ++row;
      }
    }
    EXPECT_EQ(names.size(), row);
    EXPECT_EQ(batch.row_counts, counts);
  }

  // Returns the outputs of this rank's experts for the batch.
  Tensor Outputs(client::Group& group, const Step& step, const ExpertPlacement& placement,
                 const ExpertBatch& batch, WeightsBy weights_by) {
    const std::vector<int64_t> experts = placement.ExpertsOf(group.rank());
    const std::vector<float> hidden = ToFloats(Download(group, batch.hidden));
    const auto weights = Numbers<float>(Download(group, batch.weights));
    const bool sums = weights_by == WeightsBy::kExperts;
    const auto columns = static_cast<size_t>(step.columns);
    const int64_t rows =
        sums ? batch.hidden.shape()[0] : static_cast<int64_t>(batch.by_expert.size());
    std::vector<float> outputs(static_cast<size_t>(rows) * columns, 0);
    size_t at = 0;
    for (size_t expert = 0; expert < experts.size(); ++expert) {
      for (int64_t i = 0; i < batch.row_counts[expert]; ++i, ++at) {
        const ExpertRow& one = batch.by_expert[at];
        const auto row = static_cast<size_t>(one.row);
        const auto begin = hidden.begin() + static_cast<std::ptrdiff_t>(row * columns);
        const Row y = Apply(experts[expert], Row(begin, begin + step.columns));
        const float weight =
            weights[row * static_cast<size_t>(step.slots) + static_cast<size_t>(one.slot)];
        for (size_t j = 0; j < columns; ++j) {
          if (sums) {
            outputs[row * columns + j] += weight * y[j];
          } else {
            outputs[at * columns + j] = y[j];
          }
        }
      }
    }
    EXPECT_EQ(at, batch.by_expert.size());
    return UploadInSomeLayout(group,
                              FromFloats(batch.hidden.type(), {rows, step.columns}, outputs));
  }

  absl::Status RunStep(client::Group& group, const Step& step, DataType type, DataType id_type,
                       ExpertForm form, WeightsBy weights_by) {
    COHORT_ASSIGN_OR_RETURN(const ExpertPlacement placement,
                            ExpertPlacement::Of(step.rank_of_expert, group.size()));
    ExpertDispatchOptions options;
    options.form = form;
    const ExpertTokens tokens = TokensOf(group, step, type, id_type);
    COHORT_ASSIGN_OR_RETURN(const ExpertBatch batch,
                            parallel::DispatchToExperts(group, tokens, placement, options));
    if (form != ExpertForm::kAuto) {
      EXPECT_EQ(batch.form, form);
    }
    ExpectRows(group, step, placement, batch);
    ExpertCombineOptions combine;
    combine.weights = weights_by;
    const Tensor outputs = Outputs(group, step, placement, batch, weights_by);
    COHORT_ASSIGN_OR_RETURN(const Tensor result,
                            parallel::CombineFromExperts(group, batch, outputs, combine));
    EXPECT_TRUE(result.contiguous());
    EXPECT_EQ(result.type(), type);
    const auto rank = static_cast<size_t>(group.rank());
    EXPECT_EQ(result.shape(), (Shape{step.tokens[rank], step.columns}));
    std::vector<float> expected;
    for (int64_t token = 0; token < step.tokens[rank]; ++token) {
      const Row row = step.Expected(rank, token);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_EQ(ToFloats(Download(group, result)), expected);
    return absl::OkStatus();
  }

  void RunSteps(const std::vector<int>& sizes, int rounds) {
    const uint32_t seed = std::random_device()();
    std::mt19937 random(seed);
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kF16, DataType::kF64};
    constexpr ExpertForm kExpertForms[] = {ExpertForm::kRouted, ExpertForm::kGathered,
                                           ExpertForm::kAuto};
    constexpr Load kLoads[] = {Load::kEven, Load::kOneRank, Load::kEven, Load::kNobody};
    for (const int size : sizes) {
      MakeGroup(size);
      for (int round = 0; round < rounds; ++round) {
        const Step step = RandomStep(size, kLoads[round % 4], random);
        const DataType type = kTypes[random() % 4];
        const DataType id_type = random() % 2 == 0 ? DataType::kI32 : DataType::kI64;
        const ExpertForm form = kExpertForms[round % 3];
        const bool experts_weigh = GetParam() == Form::kDevice || random() % 2 == 0;
        SCOPED_TRACE(absl::StrCat("seed ", seed, ", round ", round, ": ", size, " ranks, tokens ",
                                  absl::StrJoin(step.tokens, " "), ", ", step.experts, " experts, ",
                                  step.slots, " slots, ", NameOf(type)));
        ExpectOk(OnRanks([&](client::Group& group) {
          return RunStep(group, step, type, id_type, form,
                         experts_weigh ? WeightsBy::kExperts : WeightsBy::kCombine);
        }));
      }
    }
  }
};

TEST_P(MoeExpertsTest, GiveEveryTokenItsSum) { RunSteps({1, 2, 3, 4}, 12); }

TEST_P(MoeExpertsTest, ManyRanksGiveEveryTokenItsSum) { RunSteps({5, 6, 7, 8}, 6); }

// Rows that do not travel together, with sums that depend on the order, give the same bits twice.
TEST_P(MoeExpertsTest, GiveTheSameBitsEachTime) {
  MakeGroup(3);
  std::mt19937 random(std::random_device{}());
  constexpr int64_t kTokens = 60;
  constexpr int64_t kColumns = 700;
  std::vector<std::vector<float>> numbers(3);
  for (std::vector<float>& one : numbers) {
    for (int64_t i = 0; i < kTokens * kColumns; ++i) {
      one.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
    }
  }
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const ExpertPlacement placement, ExpertPlacement::Blocks(6, 3));
    ExpertTokens tokens;
    tokens.hidden = Upload(group, FromFloats(DataType::kF32, {kTokens, kColumns},
                                             numbers[static_cast<size_t>(group.rank())]));
    const Tensor ids = Tensor::Uninitialized(DataType::kI32, {kTokens, 3});
    for (int32_t i = 0; i < kTokens; ++i) {
      for (int32_t slot = 0; slot < 3; ++slot) {
        static_cast<int32_t*>(ids.data())[3 * i + slot] = (i + 2 * slot) % 6;
      }
    }
    tokens.ids = Upload(group, ids);
    tokens.weights =
        Upload(group, FromFloats(DataType::kF32, {kTokens, 3}, std::vector<float>(3 * kTokens, 1)));
    for (const ExpertForm form : {ExpertForm::kRouted, ExpertForm::kGathered}) {
      std::vector<std::vector<float>> results;
      for (int time = 0; time < 2; ++time) {
        ExpertDispatchOptions options;
        options.form = form;
        COHORT_ASSIGN_OR_RETURN(const ExpertBatch batch,
                                parallel::DispatchToExperts(group, tokens, placement, options));
        // This rank's one expert scales each row that it gets.
        std::vector<float> outputs = ToFloats(Download(group, batch.hidden));
        for (float& number : outputs) number *= 0.1f + static_cast<float>(group.rank());
        COHORT_ASSIGN_OR_RETURN(
            const Tensor result,
            parallel::CombineFromExperts(
                group, batch,
                Upload(group, FromFloats(DataType::kF32, batch.hidden.shape(), outputs))));
        results.push_back(ToFloats(Download(group, result)));
      }
      EXPECT_EQ(results[0], results[1]);
      const float whole = 0.1f * 3 + 3;
      const float first = numbers[static_cast<size_t>(group.rank())][0];
      EXPECT_NEAR(results[0][0], first * whole, 1e-5);
    }
    return absl::OkStatus();
  }));
}

// The choice depends on the bytes to move, and is the same on all ranks.
TEST_P(MoeExpertsTest, ChooseTheFormThatMovesLess) {
  MakeGroup(8);
  for (const bool all : {false, true}) {
    ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
      COHORT_ASSIGN_OR_RETURN(const ExpertPlacement placement, ExpertPlacement::Blocks(8, 8));
      const int64_t slots = all ? 8 : 1;
      ExpertTokens tokens;
      tokens.hidden = Upload(group, Tensor::Zeros(DataType::kF32, {4, 50}));
      const Tensor ids = Tensor::Zeros(DataType::kI32, {4, slots});
      for (int64_t i = 0; i < ids.count(); ++i) {
        static_cast<int32_t*>(ids.data())[i] = static_cast<int32_t>(i % 8);
      }
      tokens.ids = Upload(group, ids);
      tokens.weights = Upload(group, Tensor::Zeros(DataType::kF32, {4, slots}));
      COHORT_ASSIGN_OR_RETURN(const ExpertBatch batch,
                              parallel::DispatchToExperts(group, tokens, placement));
      const bool device = GetParam() == Form::kDevice;
      EXPECT_EQ(batch.form, all || device ? ExpertForm::kGathered : ExpertForm::kRouted);
      return parallel::CombineFromExperts(group, batch, batch.hidden).status();
    }));
  }
}

// If the group moves only memory of GPUs, counts and labels go that way, too.
TEST_P(MoeExpertsTest, WorkInGroupsOfGpusAlone) {
  if (GetParam() != Form::kDevice) GTEST_SKIP() << "the others have no GPUs";
  constexpr int kRanks = 3;
  const auto nccl = std::make_shared<worker::FakeNcclApi>();
  Groups groups(kRanks);
  OnThreads(kRanks, [&](int rank) {
    worker::LocalGroupOptions options;
    options.membership.connection.address = coordinator_.address();
    options.membership.group = "gpus";
    options.membership.rank = rank;
    options.membership.world_size = kRanks;
    options.bootstrap.placement = Placement::kDevice;
    options.gpu_context = std::make_shared<worker::CudaGpuContext>(nccl, rank);
    absl::StatusOr<std::unique_ptr<client::Group>> group = worker::LocalGroup::Create(options);
    EXPECT_TRUE(group.ok()) << group.status();
    if (group.ok()) groups[static_cast<size_t>(rank)] = *std::move(group);
  });
  for (const auto& group : groups) ASSERT_NE(group, nullptr);
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  for (const ExpertForm form : {ExpertForm::kRouted, ExpertForm::kGathered, ExpertForm::kAuto}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Step step = RandomStep(kRanks, Load::kEven, random);
    ExpectOk(WorkerTest::OnRanks(groups, [&](client::Group& group) {
      return RunStep(group, step, DataType::kF32, DataType::kI64, form, WeightsBy::kExperts);
    }));
  }
}

// Ranks choose between one block and a call for each tensor by the rows of all ranks. Rank 0 gets
// all rows here, more than a block takes, and the others get none. Ranks that chose by their own
// rows would call different operations.
TEST_P(MoeExpertsTest, AgreeOnTheBlockWhenOneRankGetsAllTokens) {
  constexpr int kRanks = 3;
  constexpr int64_t kTokens = 100;
  // A block takes 64 KiB: less than 300 rows of 256 bytes, and more than the 100 that a rank sends.
  constexpr int64_t kWidth = 64;
  MakeGroup(kRanks);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const ExpertPlacement placement,
                            ExpertPlacement::Blocks(kRanks, kRanks));
    const Tensor hidden = Tensor::Zeros(DataType::kF32, {kTokens, kWidth});
    for (int64_t i = 0; i < hidden.count(); ++i) {
      static_cast<float*>(hidden.data())[i] = static_cast<float>(group.rank() * hidden.count() + i);
    }
    const Tensor weights = Tensor::Zeros(DataType::kF32, {kTokens, 1});
    for (int64_t i = 0; i < kTokens; ++i) static_cast<float*>(weights.data())[i] = 1;
    ExpertTokens tokens;
    tokens.hidden = Upload(group, hidden);
    tokens.ids = Upload(group, Tensor::Zeros(DataType::kI32, {kTokens, 1}));
    tokens.weights = Upload(group, weights);
    ExpertDispatchOptions options;
    options.form = ExpertForm::kRouted;
    options.call.timeout = absl::Seconds(30);
    COHORT_ASSIGN_OR_RETURN(const ExpertBatch batch,
                            parallel::DispatchToExperts(group, tokens, placement, options));
    const Tensor got = Download(group, batch.hidden);
    EXPECT_EQ(got.shape(), (Shape{group.rank() == 0 ? kRanks * kTokens : 0, kWidth}));
    for (int64_t i = 0; i < got.count(); ++i) {
      if (static_cast<const float*>(got.data())[i] == static_cast<float>(i)) continue;
      return absl::InternalError(absl::StrCat("element ", i, " is not the one that was sent"));
    }
    ExpertCombineOptions back;
    back.call.timeout = options.call.timeout;
    COHORT_ASSIGN_OR_RETURN(const Tensor sum,
                            parallel::CombineFromExperts(group, batch, batch.hidden, back));
    EXPECT_EQ(ElementsOf(Download(group, sum)), ElementsOf(hidden));
    return absl::OkStatus();
  }));
}

// The others wait once, as long as the call may take, for a rank without tokens that leaves out its
// call, and name it.
TEST_P(MoeExpertsTest, NameARankThatDoesNotCall) {
  MakeGroup(3);
  const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) -> absl::Status {
    if (group.rank() == 1) return absl::OkStatus();
    COHORT_ASSIGN_OR_RETURN(const ExpertPlacement placement, ExpertPlacement::Blocks(4, 3));
    ExpertTokens tokens;
    tokens.hidden = Upload(group, Tensor::Zeros(DataType::kF32, {2, 4}));
    tokens.ids = Upload(group, Tensor::Zeros(DataType::kI32, {2, 1}));
    tokens.weights = Upload(group, Tensor::Zeros(DataType::kF32, {2, 1}));
    ExpertDispatchOptions options;
    options.call.timeout = absl::Milliseconds(300);
    return parallel::DispatchToExperts(group, tokens, placement, options).status();
  });
  for (const int rank : {0, 2}) {
    const absl::Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MoeExpertsTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
