// Tokens go to all ranks and their sums return, compared with the results of one process.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/parallel/moe/dispatch.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"
#include "worker/group/testing/tensor_model.h"

namespace cohort::testing {
namespace {

using client::Sizes;
using parallel::CombineOptions;
using parallel::DispatchedBatch;
using parallel::DispatchOptions;
using parallel::TokenBatch;
using ::testing::ElementsAre;
using worker::TensorModel;

class MoeDispatchTest : public ParallelTest {
 protected:
  // The elements where this form's tensors lie, in some layout where this process may choose one.
  // `keep` holds the memory.
  Tensor Place(client::Group& group, const TensorModel& model, std::mt19937& random,
               std::vector<RandomTensor>& keep) {
    if (GetParam() == Form::kDevice) {
      Tensor host = Tensor::Uninitialized(model.type, model.shape);
      SetElements(host, model.bytes);
      return Upload(group, host);
    }
    keep.emplace_back(model.type, model.shape, random);
    SetElements(keep.back().tensor(), model.bytes);
    return keep.back().tensor();
  }

  void ExpectIs(client::Group& group, const Tensor& tensor, const TensorModel& model) {
    EXPECT_TRUE(tensor.contiguous());
    EXPECT_EQ(tensor.type(), model.type);
    EXPECT_EQ(tensor.shape(), model.shape);
    EXPECT_EQ(ElementsOf(Download(group, tensor)), model.bytes);
  }

  void ExpectDispatchOnAStream(bool knows_sizes) {
    ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
      const Tensor own = Tensor::Zeros(DataType::kI32, {group.rank() + 1});
      std::fill_n(static_cast<int32_t*>(own.data()), own.count(), group.rank() + 5);
      TokenBatch batch;
      batch.hidden = Upload(group, own);
      batch.extras.push_back(Upload(group, own));
      DispatchOptions options;
      if (knows_sizes) options.sizes = {1, 2};
      // The default stream is that of the thread's device.
      EXPECT_EQ(cudaSetDevice(group.device().index()), cudaSuccess);
      options.call.stream = nullptr;
      COHORT_ASSIGN_OR_RETURN(const DispatchedBatch all, parallel::Dispatch(group, batch, options));
      CombineOptions combine;
      combine.call = options.call;
      COHORT_ASSIGN_OR_RETURN(const Tensor back,
                              parallel::Combine(group, all.hidden, all.sizes, combine));
      COHORT_RETURN_IF_ERROR(group.AwaitStreams());
      const Tensor extra = Download(group, all.extras[0]);
      const auto* const numbers = static_cast<const int32_t*>(extra.data());
      EXPECT_THAT(std::vector<int32_t>(numbers, numbers + extra.count()), ElementsAre(5, 6, 6));
      const Tensor sums = Download(group, back);
      EXPECT_EQ(sums.count(), group.rank() + 1);
      EXPECT_EQ(static_cast<const int32_t*>(sums.data())[0], 2 * (group.rank() + 5));
      return absl::OkStatus();
    }));
  }
};

// The tensors of all ranks: by tensor, then by rank.
using Models = std::vector<std::vector<TensorModel>>;

Models RandomModels(size_t tensors, const Sizes& rows, std::mt19937& random) {
  Models models;
  for (size_t i = 0; i < tensors; ++i) {
    const DataType type = kDataTypes[random() % kDataTypes.size()];
    Shape shape = {0};
    const auto dims = random() % 3;
    if (dims > 0) shape.push_back(static_cast<int64_t>(random() % (i == 0 ? 100 : 9)));
    if (dims > 1) shape.push_back(static_cast<int64_t>(random() % 3));
    models.emplace_back();
    for (const int64_t count : rows) {
      models.back().push_back(worker::RandomModel(type, worker::With(shape, 0, count), random));
    }
  }
  return models;
}

TEST_P(MoeDispatchTest, GathersEveryTensorOfAnyTypeByRank) {
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  for (const int size : {1, 2, 3, 8}) {
    MakeGroup(size);
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", size, " ranks, round ", round));
      // In one round of three, ranks have many rows, which do not travel together; some ranks have
      // none.
      Sizes rows;
      for (int rank = 0; rank < size; ++rank) {
        rows.push_back(static_cast<int64_t>(random() % 4 == 0 ? 0 : random() % 200));
        if (round % 3 != 0) rows.back() %= 7;
      }
      const size_t companions = random() % 3;
      const size_t extras = random() % 3;
      const Models models = RandomModels(1 + companions + extras, rows, random);
      DispatchOptions options;
      if (round % 2 == 0) options.sizes = rows;
      const uint32_t layouts = random();
      ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
        const auto rank = static_cast<size_t>(group.rank());
        std::mt19937 layout(layouts + static_cast<uint32_t>(rank));
        std::vector<RandomTensor> keep;
        keep.reserve(models.size());
        TokenBatch batch;
        for (size_t i = 0; i < models.size(); ++i) {
          const Tensor tensor = Place(group, models[i][rank], layout, keep);
          if (i == 0) batch.hidden = tensor;
          if (i > 0 && i <= companions) batch.companions.push_back(tensor);
          if (i > companions) batch.extras.push_back(tensor);
        }
        COHORT_ASSIGN_OR_RETURN(const DispatchedBatch result,
                                parallel::Dispatch(group, batch, options));
        EXPECT_EQ(result.sizes, rows);
        EXPECT_EQ(result.companions.size(), companions);
        EXPECT_EQ(result.extras.size(), extras);
        for (size_t i = 0; i < models.size(); ++i) {
          const Tensor& tensor = i == 0 ? result.hidden
                                        : (i <= companions ? result.companions[i - 1]
                                                           : result.extras[i - 1 - companions]);
          ExpectIs(group, tensor, worker::Join(models[i], 0));
        }
        return absl::OkStatus();
      }));
    }
  }
}

TEST_P(MoeDispatchTest, CombineAddsUpEachRanksRows) {
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  for (const int size : {1, 2, 5}) {
    MakeGroup(size);
    for (const DataType type : {DataType::kF32, DataType::kBF16, DataType::kF16, DataType::kI32}) {
      Sizes rows;
      for (int rank = 0; rank < size; ++rank) {
        rows.push_back(static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 40));
      }
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", size, " ranks, ", NameOf(type), ", rows ",
                                absl::StrJoin(rows, " ")));
      const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
      std::vector<TensorModel> parts;
      for (int rank = 0; rank < size; ++rank) {
        parts.push_back(worker::RandomModel(type, {all, 24}, random));
      }
      const TensorModel sum = worker::Reduced(parts, {ReduceOp::kSum});
      const uint32_t layouts = random();
      ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
        const auto rank = static_cast<size_t>(group.rank());
        std::mt19937 layout(layouts + static_cast<uint32_t>(rank));
        std::vector<RandomTensor> keep;
        const Tensor part = Place(group, parts[rank], layout, keep);
        COHORT_ASSIGN_OR_RETURN(const Tensor own, parallel::Combine(group, part, rows));
        const int64_t begin =
            std::accumulate(rows.begin(), rows.begin() + group.rank(), int64_t{0});
        ExpectIs(group, own, worker::Slice(sum, 0, begin, rows[rank]));
        return absl::OkStatus();
      }));
    }
  }
}

// Two data ranks of two ranks each, with 5 and 0 tokens. Each rank of the first brings ceil(5 / 2),
// padding included; the others bring none.
TEST_P(MoeDispatchTest, SequenceParallelRanksBringTheirShare) {
  MakeGroup(4);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const int64_t rows = group.rank() < 2 ? 3 : 0;
    const Tensor own = Tensor::Zeros(DataType::kI32, {rows, 2});
    for (int64_t i = 0; i < own.count(); ++i) {
      static_cast<int32_t*>(own.data())[i] = static_cast<int32_t>(100 * group.rank() + i);
    }
    TokenBatch batch;
    batch.hidden = Upload(group, own);
    DispatchOptions options;
    options.sizes = {5, 0};
    options.sequence_parallel = 2;
    COHORT_ASSIGN_OR_RETURN(const DispatchedBatch all, parallel::Dispatch(group, batch, options));
    EXPECT_THAT(all.sizes, ElementsAre(3, 3, 0, 0));
    const Tensor host = Download(group, all.hidden);
    const auto* const numbers = static_cast<const int32_t*>(host.data());
    EXPECT_THAT(std::vector<int32_t>(numbers, numbers + host.count()),
                ElementsAre(0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105));

    CombineOptions combine;
    combine.sequence_parallel = 2;
    COHORT_ASSIGN_OR_RETURN(const Tensor back,
                            parallel::Combine(group, all.hidden, {5, 0}, combine));
    EXPECT_EQ(back.shape(), (Shape{rows, 2}));
    const Tensor sums = Download(group, back);
    for (int64_t i = 0; i < sums.count(); ++i) {
      EXPECT_EQ(static_cast<const int32_t*>(sums.data())[i],
                4 * static_cast<const int32_t*>(own.data())[i]);
    }
    return absl::OkStatus();
  }));
}

// Ranks without more rows still take part, with no rows.
TEST_P(MoeDispatchTest, InChunksUntilAllAreThrough) {
  MakeGroup(3);
  const Sizes tokens = {7, 0, 3};
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const auto rank = static_cast<size_t>(group.rank());
    const Tensor own = Tensor::Zeros(DataType::kU8, {tokens[rank], 1});
    for (int64_t i = 0; i < own.count(); ++i) {
      static_cast<uint8_t*>(own.data())[i] = static_cast<uint8_t>(10 * rank + i);
    }
    const Tensor hidden = Upload(group, own);
    std::vector<int> came;
    COHORT_ASSIGN_OR_RETURN(const int64_t chunks, parallel::ChunkCount(tokens, 3));
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      DispatchOptions options;
      COHORT_ASSIGN_OR_RETURN(options.sizes, parallel::ChunkSizes(tokens, 3, chunk));
      TokenBatch batch;
      const int64_t rows = (*options.sizes)[rank];
      COHORT_ASSIGN_OR_RETURN(batch.hidden, hidden.Narrow(0, rows == 0 ? 0 : 3 * chunk, rows));
      COHORT_ASSIGN_OR_RETURN(const DispatchedBatch all, parallel::Dispatch(group, batch, options));
      for (const char byte : ElementsOf(Download(group, all.hidden))) came.push_back(byte);
    }
    EXPECT_THAT(came, ElementsAre(0, 1, 2, 20, 21, 22, 3, 4, 5, 6));
    return absl::OkStatus();
  }));
}

// With sizes that all ranks know, calls on a stream do not wait. Without them, ranks wait for each
// other's numbers of rows, on the host.
TEST_P(MoeDispatchTest, OnAStreamOfAGpu) {
  if (GetParam() != Form::kDevice) GTEST_SKIP() << "the others have no GPUs";
  MakeGroup(2);
  for (const bool knows_sizes : {true, false}) {
    SCOPED_TRACE(knows_sizes);
    ExpectDispatchOnAStream(knows_sizes);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MoeDispatchTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
