// One rank's mistake, and ranks that mean different things: all ranks get the same error at once,
// and the group works on.
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/moe/dispatch.h"
#include "client/parallel/moe/expert_dispatch.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using parallel::DispatchOptions;
using parallel::ExpertBatch;
using parallel::ExpertCombineOptions;
using parallel::ExpertDispatchOptions;
using parallel::ExpertForm;
using parallel::ExpertPlacement;
using parallel::ExpertTokens;
using parallel::TokenBatch;
using parallel::WeightsBy;
using ::testing::HasSubstr;

class MoeBadInputTest : public ParallelTest {
 protected:
  Tensor Zeros(client::Group& group, DataType type, const Shape& shape) {
    return Upload(group, Tensor::Zeros(type, shape));
  }
  // Returns a tensor without rows, whose rows would have more elements than can be counted.
  Tensor Uncountable(client::Group& group, DataType type) {
    return Tensor(nullptr, type, {0, int64_t{1} << 40, int64_t{1} << 40}, nullptr,
                  GetParam() == Form::kDevice ? group.device() : Device::Host());
  }
  bool IsCulprit(const client::Group& group) const { return group.rank() == size() - 1; }
  std::string Culprit() const { return absl::StrCat("rank ", size() - 1, " "); }

  void ExpectRefused(const std::function<absl::Status(client::Group&)>& body,
                     const std::vector<std::string>& said) {
    const std::vector<absl::Status> statuses = OnRanks(body);
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    for (const std::string& text : said) {
      EXPECT_THAT(std::string(statuses[0].message()), HasSubstr(text));
    }
    ExpectOk(OnRanks([&](client::Group& group) {
      const Tensor tensor = Zeros(group, DataType::kF32, {3});
      return group.AllReduce(tensor, tensor, {});
    }));
  }

  // Changes the batch and the options of the culprit.
  using BatchChange = std::function<void(client::Group&, TokenBatch&, DispatchOptions&)>;
  void ExpectDispatchRefused(bool sizes_given, const BatchChange& change,
                             const std::vector<std::string>& said) {
    ExpectRefused(
        [&](client::Group& group) {
          TokenBatch batch;
          batch.hidden = Zeros(group, DataType::kBF16, {4, 8});
          batch.companions = {Zeros(group, DataType::kF32, {4, 2}),
                              Zeros(group, DataType::kI32, {4, 2})};
          batch.extras = {Zeros(group, DataType::kBool, {4})};
          DispatchOptions options;
          if (sizes_given) options.sizes.emplace(static_cast<size_t>(size()), 4);
          if (IsCulprit(group)) change(group, batch, options);
          return parallel::Dispatch(group, batch, options).status();
        },
        said);
  }

  using TokensChange = std::function<void(client::Group&, ExpertTokens&, ExpertDispatchOptions&)>;
  void ExpectExpertsRefused(const TokensChange& change, const std::vector<std::string>& said) {
    ExpectRefused(
        [&](client::Group& group) {
          ExpertTokens tokens = MakeTokens(group);
          ExpertDispatchOptions options;
          if (IsCulprit(group)) change(group, tokens, options);
          return parallel::DispatchToExperts(group, tokens, *ExpertPlacement::Blocks(4, size()),
                                             options)
              .status();
        },
        said);
  }

  // Three tokens with experts 0 and 1 each.
  ExpertTokens MakeTokens(client::Group& group) {
    ExpertTokens tokens;
    tokens.hidden = Zeros(group, DataType::kF32, {3, 8});
    tokens.ids = Ids(group, {0, 1, 0, 1, 0, 1});
    tokens.weights = Zeros(group, DataType::kF32, {3, 2});
    return tokens;
  }
  Tensor Ids(client::Group& group, const std::vector<int32_t>& ids) {
    const Tensor tensor = Tensor::Uninitialized(DataType::kI32, {3, 2});
    std::copy(ids.begin(), ids.end(), static_cast<int32_t*>(tensor.data()));
    return Upload(group, tensor);
  }
};

TEST_P(MoeBadInputTest, DispatchIsRefusedOnAllRanks) {
  for (const int ranks : {2, 4}) {
    MakeGroup(ranks);
    for (const bool given : {false, true}) {
      ExpectDispatchRefused(given,
                            [&](client::Group& group, TokenBatch& batch, DispatchOptions&) {
                              batch.companions[1] = Zeros(group, DataType::kI32, {5, 2});
                            },
                            {Culprit(), "companion 1 is i32 [5, 2]", "hidden has 4 rows"});
      ExpectDispatchRefused(given,
                            [&](client::Group& group, TokenBatch& batch, DispatchOptions&) {
                              batch.extras.push_back(Zeros(group, DataType::kBool, {}));
                            },
                            {Culprit(), "extra 1 is bool []"});
      ExpectDispatchRefused(given,
                            [&](client::Group& group, TokenBatch& batch, DispatchOptions&) {
                              batch.hidden = Zeros(group, DataType::kBF16, {});
                            },
                            {Culprit(), "hidden has no rows"});
      ExpectDispatchRefused(given,
                            [&](client::Group& group, TokenBatch& batch, DispatchOptions&) {
                              batch.hidden = Uncountable(group, DataType::kBF16);
                            },
                            {Culprit(), "than can be counted"});
      ExpectDispatchRefused(given,
                            [&](client::Group& group, TokenBatch& batch, DispatchOptions&) {
                              batch.extras[0] = Uncountable(group, DataType::kBool);
                            },
                            {Culprit(), "than can be counted"});
      // The swapped tensors have equally many bytes, so that sizes do not show the mistake.
      ExpectDispatchRefused(given,
                            [&](client::Group&, TokenBatch& batch, DispatchOptions&) {
                              std::swap(batch.companions[0], batch.companions[1]);
                            },
                            {Culprit(), "dispatches hidden bf16 [*, 8]", "companion i32 [*, 2]"});
      ExpectDispatchRefused(given,
                            [&](client::Group&, TokenBatch& batch, DispatchOptions&) {
                              batch.extras.swap(batch.companions);
                            },
                            {});
    }
    ExpectDispatchRefused(true,
                          [&](client::Group& group, TokenBatch& batch, DispatchOptions&) {
                            batch = {Zeros(group, DataType::kBF16, {3, 8}), {}, {}};
                          },
                          {Culprit(), "hidden has 3 rows, expected by the sizes: 4"});
    ExpectDispatchRefused(
        true,
        [&](client::Group&, TokenBatch&, DispatchOptions& options) { options.sizes->push_back(4); },
        {Culprit(), absl::StrCat(ranks + 1, " sizes")});
    ExpectDispatchRefused(
        true,
        [&](client::Group&, TokenBatch&, DispatchOptions& options) { (*options.sizes)[0] = -1; },
        {Culprit(), "a size of -1 for rank 0"});
    ExpectDispatchRefused(
        true,
        [&](client::Group&, TokenBatch&, DispatchOptions& options) { (*options.sizes)[0] = 5; },
        {Culprit()});
    ExpectDispatchRefused(true,
                          [&](client::Group&, TokenBatch&, DispatchOptions& options) {
                            options.sequence_parallel = 0;
                          },
                          {Culprit(), "0 ranks that share a batch"});
    ExpectDispatchRefused(true,
                          [&](client::Group&, TokenBatch&, DispatchOptions& options) {
                            options.sequence_parallel = std::numeric_limits<int>::max();
                          },
                          {Culprit(), "of more than 1048576 ranks"});
    // One rank gives sizes, and the others ask for them.
    ExpectDispatchRefused(false,
                          [&](client::Group&, TokenBatch&, DispatchOptions& options) {
                            options.sizes.emplace(static_cast<size_t>(ranks), 4);
                          },
                          {Culprit()});
  }
}

TEST_P(MoeBadInputTest, CombineIsRefusedOnAllRanks) {
  for (const int ranks : {2, 4}) {
    MakeGroup(ranks);
    const client::Sizes sizes(static_cast<size_t>(ranks), 2);
    const auto expect_refused = [&](const Shape& shape, DataType type, const client::Sizes& its,
                                    const std::vector<std::string>& said) {
      ExpectRefused(
          [&](client::Group& group) {
            const bool bad = IsCulprit(group);
            const Tensor hidden =
                bad ? Zeros(group, type, shape) : Zeros(group, DataType::kF32, {2 * ranks, 8});
            return parallel::Combine(group, hidden, bad ? its : sizes).status();
          },
          said);
    };
    expect_refused({2 * ranks + 1, 8}, DataType::kF32, sizes,
                   {Culprit(), absl::StrCat("hidden has ", 2 * ranks + 1, " rows")});
    expect_refused({2 * ranks, 8}, DataType::kC64, sizes, {Culprit()});
    expect_refused({2 * ranks, 8}, DataType::kF16, sizes, {Culprit()});
    expect_refused({2 * ranks, 9}, DataType::kF32, sizes, {Culprit()});
    expect_refused({}, DataType::kF32, sizes, {Culprit(), "hidden has no rows"});
    expect_refused({0, 8}, DataType::kF32, {}, {Culprit(), "0 sizes"});
  }
}

TEST_P(MoeBadInputTest, DispatchToExpertsIsRefusedOnAllRanks) {
  for (const int ranks : {2, 4}) {
    MakeGroup(ranks);
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.ids = Ids(group, {0, 1, 0, 4, 0, 1});
        },
        {Culprit(), "token 1 has expert 4 in slot 1, of 4 experts"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.hidden = Uncountable(group, DataType::kF32);
        },
        {Culprit(), "than can be counted"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.ids = Ids(group, {0, 1, 0, 1, -2, 1});
        },
        {Culprit(), "token 2 has expert -2"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.ids = Ids(group, {0, 1, 2, 2, 0, 1});
        },
        {Culprit(), "token 1 has expert 2 in slot 1, which it has in a slot before"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.ids = Zeros(group, DataType::kI16, {3, 2});
        },
        {Culprit(), "ids are i16 [3, 2]", "i32 or i64 [3, k]"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.weights = Zeros(group, DataType::kF32, {3, 3});
        },
        {Culprit(), "weights are f32 [3, 3]"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.hidden = Zeros(group, DataType::kF32, {2, 8});
        },
        {Culprit(), "ids are i32 [3, 2]"});
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.extras.push_back(Zeros(group, DataType::kF32, {2}));
        },
        {Culprit(), "extra 0 is f32 [2]"});
    ExpectExpertsRefused([&](client::Group&, ExpertTokens&,
                             ExpertDispatchOptions& options) { options.call.stream = nullptr; },
                         {Culprit(), "cannot run on a stream"});
    // Mistakes that only the other ranks' arguments show.
    ExpectExpertsRefused(
        [&](client::Group& group, ExpertTokens& tokens, ExpertDispatchOptions&) {
          tokens.hidden = Zeros(group, DataType::kI32, {3, 8});
        },
        {"rank 0 dispatches to 4 experts", "token of f32 [*, 8]", "token of i32 [*, 8]"});
    ExpectExpertsRefused(
        [&](client::Group&, ExpertTokens&, ExpertDispatchOptions& options) {
          options.form = ExpertForm::kGathered;
        },
        {"in form 0", "in form 2"});
    ExpectRefused(
        [&](client::Group& group) {
          const ExpertPlacement placement = IsCulprit(group)
                                                ? *ExpertPlacement::Of({0, 0, 0, 0}, ranks)
                                                : *ExpertPlacement::Blocks(4, ranks);
          return parallel::DispatchToExperts(group, MakeTokens(group), placement).status();
        },
        {"rank 0 dispatches to 4 experts, placed as"});
    ExpectRefused(
        [&](client::Group& group) {
          const int its = IsCulprit(group) ? ranks + 1 : ranks;
          return parallel::DispatchToExperts(group, MakeTokens(group),
                                             *ExpertPlacement::Blocks(4, its))
              .status();
        },
        {Culprit(), absl::StrCat("placed on ", ranks + 1, " ranks")});
  }
}

TEST_P(MoeBadInputTest, CombineFromExpertsIsRefusedOnAllRanks) {
  for (const int ranks : {2, 4}) {
    MakeGroup(ranks);
    for (const ExpertForm form : {ExpertForm::kRouted, ExpertForm::kGathered}) {
      const auto expect_refused =
          [&](const std::function<void(client::Group&, ExpertBatch&, Tensor&)>& change,
              const std::vector<std::string>& said) {
            ExpectRefused(
                [&](client::Group& group) -> absl::Status {
                  ExpertDispatchOptions options;
                  options.form = form;
                  COHORT_ASSIGN_OR_RETURN(
                      ExpertBatch batch,
                      parallel::DispatchToExperts(group, MakeTokens(group),
                                                  *ExpertPlacement::Blocks(4, ranks), options));
                  Tensor outputs = batch.hidden;
                  if (IsCulprit(group)) change(group, batch, outputs);
                  return parallel::CombineFromExperts(group, batch, outputs).status();
                },
                said);
          };
      expect_refused(
          [&](client::Group& group, ExpertBatch&, Tensor& outputs) {
            outputs = Zeros(group, DataType::kF32, {outputs.shape()[0] + 1, 8});
          },
          {Culprit(), "outputs are f32 ["});
      expect_refused(
          [&](client::Group& group, ExpertBatch&, Tensor& outputs) {
            outputs = Zeros(group, DataType::kI32, outputs.shape());
          },
          {Culprit(), "outputs are i32 ["});
      expect_refused(
          [&](client::Group& group, ExpertBatch&, Tensor& outputs) {
            outputs = Zeros(group, DataType::kF64, outputs.shape());
          },
          {Culprit()});
      expect_refused([&](client::Group&, ExpertBatch& batch, Tensor&) { batch.routes = nullptr; },
                     {Culprit(), "the batch did not come from a dispatch"});
    }
  }
}

// Row arithmetic does not run on GPUs: each rank returns the error for itself, and the group works
// on.
TEST_P(MoeBadInputTest, WeighingOnGpusIsRefused) {
  if (GetParam() != Form::kDevice) GTEST_SKIP() << "the others have no GPUs";
  MakeGroup(2);
  const auto weigh = [&](client::Group& group, bool by_combine) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const ExpertBatch batch,
        parallel::DispatchToExperts(group, MakeTokens(group), *ExpertPlacement::Blocks(4, 2)));
    ExpertCombineOptions options;
    if (!by_combine) return parallel::CombineFromExperts(group, batch, batch.hidden).status();
    options.weights = WeightsBy::kCombine;
    const auto rows = static_cast<int64_t>(batch.by_expert.size());
    return parallel::CombineFromExperts(group, batch, Zeros(group, DataType::kF32, {rows, 8}),
                                        options)
        .status();
  };
  for (const absl::Status& status :
       OnRanks([&](client::Group& group) { return weigh(group, true); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  }
  ExpectOk(OnRanks([&](client::Group& group) { return weigh(group, false); }));
}

INSTANTIATE_TEST_SUITE_P(Forms, MoeBadInputTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
