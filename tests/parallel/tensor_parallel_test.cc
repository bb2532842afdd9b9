// Regions of split layers, on groups of every form: Forward and Backward are adjoint, and their
// results are those of one process. One file, though long: regions share one table.
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_parallel/regions.h"
#include "client/parallel/tensor_parallel/sequence_exchange.h"
#include "client/parallel/tensor_parallel/splits.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"
#include "tests/parallel/testing/placed_tensor.h"
#include "worker/group/testing/tensor_model.h"

namespace cohort::parallel {
namespace {

using ::cohort::testing::Form;
using ::cohort::testing::FormName;
using ::cohort::testing::PlacedTensor;
using ::testing::HasSubstr;
using worker::RandomModel;
using worker::Slice;
using worker::TensorModel;
using worker::With;

using Models = std::vector<TensorModel>;

double Dot(const TensorModel& a, const TensorModel& b) {
  EXPECT_EQ(a.shape, b.shape);
  if (a.shape != b.shape) return std::nan("");
  const auto* const x = reinterpret_cast<const double*>(a.bytes.data());
  const auto* const y = reinterpret_cast<const double*>(b.bytes.data());
  return std::inner_product(x, x + ElementCount(a.shape), y, 0.0);
}

// The terms of one side of the equation: every rank's own, or one term that all ranks have.
enum class Side { kOwn, kOne };

double Total(const Models& a, const Models& b, Side side) {
  double total = 0;
  for (size_t rank = 0; rank < (side == Side::kOwn ? a.size() : 1); ++rank) {
    total += Dot(a[rank], b[rank]);
  }
  return total;
}

// The parts of a tensor along a dimension, one for each of `sizes`.
Models Parts(const TensorModel& whole, int dim, const Sizes& sizes) {
  Models parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(Slice(whole, dim, begin, size));
    begin += size;
  }
  return parts;
}

class TensorParallelTest : public cohort::testing::ParallelTest {
 protected:
  using Function = std::function<absl::StatusOr<Tensor>(client::Group&, const Tensor&)>;

  // Returns the result of each rank's call on its own input, which stays as it is.
  Models Call(const Models& inputs, const Function& function) {
    Models results(inputs.size());
    const auto layouts = static_cast<uint32_t>(random_());
    ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
      const auto rank = static_cast<size_t>(group.rank());
      std::mt19937 own(layouts + static_cast<uint32_t>(rank));
      const Device device = GetParam() == Form::kDevice ? group.device() : Device::Host();
      const PlacedTensor input(group, device, inputs[rank], own);
      COHORT_ASSIGN_OR_RETURN(const Tensor result, function(group, input.tensor()));
      EXPECT_TRUE(input.Untouched());
      EXPECT_EQ(result.device(), device);
      EXPECT_TRUE(result.contiguous() || result.data() == input.tensor().data());
      results[rank] = {result.type(), result.shape(), ElementsOf(Touchable(result))};
      return absl::OkStatus();
    }));
    return results;
  }
  Models Each(const Shape& shape, Side side = Side::kOwn, DataType type = DataType::kF64) {
    Models models;
    for (int rank = 0; rank < size(); ++rank) {
      models.push_back(side == Side::kOne && rank > 0 ? models[0]
                                                      : RandomModel(type, shape, random_));
    }
    return models;
  }
  Models Ragged(const Shape& shape, const Sizes& rows) {
    Models models;
    for (const int64_t size : rows) {
      models.push_back(RandomModel(DataType::kF64, With(shape, 0, size), random_));
    }
    return models;
  }

  void ExpectSame(const Models& results, const Models& expected) {
    ASSERT_EQ(results.size(), expected.size());
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].shape, expected[rank].shape) << "rank " << rank;
      EXPECT_TRUE(results[rank].bytes == expected[rank].bytes) << "rank " << rank;
    }
  }

  // <Forward(x), y> = <x, Backward(y)>; `of_x`, `of_y`: whether each rank has its own x and y, or
  // all have one.
  template <typename MakeRegion>
  void ExpectAdjoint(const Models& x, Side of_x, const Models& y, Side of_y,
                     const MakeRegion& make) {
    const Models forward = Call(
        x, [&](client::Group& group, const Tensor& input) { return make(group).Forward(input); });
    const Models backward = Call(y, [&](client::Group& group, const Tensor& gradient) {
      return make(group).Backward(gradient);
    });
    const double left = Total(forward, y, of_y);
    const double right = Total(x, backward, of_x);
    EXPECT_NEAR(left, right, 1e-9 * (1 + std::abs(left)));
  }

  std::mt19937 random_;
};

// One with rows of rank, and columns; some have none.
Shape RowsAndColumns(int64_t rows, int64_t columns) { return {rows, 3, columns}; }

TEST_P(TensorParallelTest, RegionsAreAdjoint) {
  for (int size = 1; size <= 8; ++size) {
    MakeGroup(size);
    random_.seed(static_cast<uint32_t>(size));
    for (const int64_t part : {2, 0}) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, parts of ", part));
      const int64_t whole = part * size;
      const Shape rows = RowsAndColumns(whole, 2);
      const Shape row_part = RowsAndColumns(part, 2);
      const Shape columns = RowsAndColumns(2, whole);
      const Shape column_part = RowsAndColumns(2, part);
      const Side own = Side::kOwn;
      const Side one = Side::kOne;
      ExpectAdjoint(Each(rows, one), one, Each(rows), own,
                    [](client::Group& group) { return CopyRegion(group); });
      ExpectAdjoint(Each(rows), own, Each(rows, one), one,
                    [](client::Group& group) { return ReduceRegion(group); });
      ExpectAdjoint(Each(columns, one), one, Each(column_part), own,
                    [](client::Group& group) { return ScatterRegion(group); });
      ExpectAdjoint(Each(column_part), own, Each(columns, one), one,
                    [](client::Group& group) { return GatherRegion(group); });
      ExpectAdjoint(Each(rows, one), one, Each(row_part), own,
                    [](client::Group& group) { return SequenceScatter(group); });
      ExpectAdjoint(Each(row_part), own, Each(rows), own,
                    [](client::Group& group) { return SequenceGather(group); });
      ExpectAdjoint(Each(row_part), own, Each(rows, one), one, [](client::Group& group) {
        return SequenceGather(group, {.tensor_parallel_output_grad = false});
      });
      ExpectAdjoint(Each(rows), own, Each(row_part), own,
                    [](client::Group& group) { return SequenceReduceScatter(group); });
      ExpectAdjoint(Each(column_part), own, Each(columns), own,
                    [](client::Group& group) { return AllGatherLastDim(group); });
      ExpectAdjoint(Each(columns), own, Each(column_part), own,
                    [](client::Group& group) { return ReduceScatterLastDim(group); });
      ExpectAdjoint(Each(rows), own, Each(rows), own,
                    [](client::Group& group) { return AllToAllRegion(group); });
      if (HasFailure()) return;
    }
  }
}

TEST_P(TensorParallelTest, RaggedRegionsAreAdjoint) {
  for (int size = 1; size <= 8; ++size) {
    SCOPED_TRACE(absl::StrCat(size, " ranks"));
    MakeGroup(size);
    random_.seed(static_cast<uint32_t>(size));
    Sizes sizes;
    for (int rank = 0; rank < size; ++rank) sizes.push_back((rank * 2 + 1) % 4);
    const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const Shape shape = RowsAndColumns(sum, 2);
    ExpectAdjoint(Ragged(shape, sizes), Side::kOwn, Each(shape), Side::kOwn,
                  [&](client::Group& group) { return SequenceGather(group, {.sizes = sizes}); });
    ExpectAdjoint(
        Each(shape), Side::kOwn, Ragged(shape, sizes), Side::kOwn,
        [&](client::Group& group) { return SequenceReduceScatter(group, {.sizes = sizes}); });

    // Rank r sends rank s (r + 2s) % 3 rows.
    const auto rows = [](int from, int to) { return int64_t{(from + 2 * to) % 3}; };
    const auto options = [&](const client::Group& group) {
      AllToAllRegionOptions options;
      options.input_sizes.emplace();
      options.output_sizes.emplace();
      for (int rank = 0; rank < size; ++rank) {
        options.input_sizes->push_back(rows(group.rank(), rank));
        options.output_sizes->push_back(rows(rank, group.rank()));
      }
      return options;
    };
    Sizes sent(static_cast<size_t>(size), 0);
    Sizes received(static_cast<size_t>(size), 0);
    for (int rank = 0; rank < size; ++rank) {
      for (int other = 0; other < size; ++other) {
        sent[static_cast<size_t>(rank)] += rows(rank, other);
        received[static_cast<size_t>(rank)] += rows(other, rank);
      }
    }
    ExpectAdjoint(Ragged(shape, sent), Side::kOwn, Ragged(shape, received), Side::kOwn,
                  [&](client::Group& group) { return AllToAllRegion(group, options(group)); });
    if (HasFailure()) return;
  }
}

TEST_P(TensorParallelTest, AnExchangeWithOneOfItsSizesIsAdjoint) {
  for (int size = 1; size <= 4; ++size) {
    SCOPED_TRACE(absl::StrCat(size, " ranks"));
    MakeGroup(size);
    random_.seed(static_cast<uint32_t>(size));
    // Rank r has r * size rows: r of them for each rank.
    Sizes own;
    Sizes from_each;
    for (int rank = 0; rank < size; ++rank) {
      own.push_back(int64_t{rank} * size);
      from_each.push_back(rank);
    }
    const int64_t sum = std::accumulate(from_each.begin(), from_each.end(), int64_t{0});
    const Shape shape = RowsAndColumns(sum, 2);
    ExpectAdjoint(
        Ragged(shape, own), Side::kOwn, Each(shape), Side::kOwn,
        [&](client::Group& group) { return AllToAllRegion(group, {.output_sizes = from_each}); });
    // All ranks have the same number of rows, in parts that the other ranks know.
    const Shape even = RowsAndColumns(2 * size, 2);
    const Sizes parts(static_cast<size_t>(size), 2);
    ExpectAdjoint(Each(even), Side::kOwn, Each(even), Side::kOwn, [&](client::Group& group) {
      return AllToAllRegion(group, {.input_sizes = parts});
    });
    if (HasFailure()) return;
  }
}

TEST_P(TensorParallelTest, SlicesAndJoins) {
  for (const int size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(absl::StrCat(size, " ranks"));
    MakeGroup(size);
    random_.seed(static_cast<uint32_t>(size));
    for (const DataType type : {DataType::kF32, DataType::kBool, DataType::kC128}) {
      const Sizes sizes(static_cast<size_t>(size), 2);
      const Models columns = Each(RowsAndColumns(3, 2 * size), Side::kOne, type);
      const Models column_parts = Parts(columns[0], 2, sizes);
      const Models rows = Each(RowsAndColumns(2 * size, 5), Side::kOne, type);
      const Models row_parts = Parts(rows[0], 0, sizes);
      ExpectSame(
          Call(columns, [](client::Group& group,
                           const Tensor& tensor) { return ScatterRegion(group).Forward(tensor); }),
          column_parts);
      ExpectSame(Call(column_parts,
                      [](client::Group& group, const Tensor& tensor) {
                        return GatherRegion(group).Forward(tensor);
                      }),
                 columns);
      ExpectSame(
          Call(rows, [](client::Group& group,
                        const Tensor& tensor) { return SequenceScatter(group).Forward(tensor); }),
          row_parts);
      ExpectSame(Call(row_parts,
                      [](client::Group& group, const Tensor& tensor) {
                        return SequenceGather(group).Forward(tensor);
                      }),
                 rows);
      ExpectSame(Call(columns, [](client::Group& group,
                                  const Tensor& tensor) { return SplitLastDim(group, tensor); }),
                 column_parts);
      ExpectSame(Call(rows, [](client::Group& group,
                               const Tensor& tensor) { return SplitFirstDim(group, tensor); }),
                 row_parts);

      TensorModel row = columns[0];
      row.shape = {ElementCount(row.shape)};
      const Models chunks = Parts(row, 0, Sizes(static_cast<size_t>(size), row.shape[0] / size));
      ExpectSame(Call(columns, [](client::Group& group,
                                  const Tensor& tensor) { return Split1D(group, tensor); }),
                 chunks);
      ExpectSame(Call(chunks,
                      [&](client::Group& group, const Tensor& tensor) {
                        return Gather1D(group, tensor, columns[0].shape);
                      }),
                 columns);
      if (HasFailure()) return;
    }
  }
}

TEST_P(TensorParallelTest, RowsToColumnsAndBack) {
  for (const int size : {1, 2, 3, 4, 8}) {
    MakeGroup(size);
    random_.seed(static_cast<uint32_t>(size));
    for (const DataType type : {DataType::kBF16, DataType::kC64, DataType::kU8}) {
      for (const Shape& leading : {Shape{6}, Shape{2, 3}, Shape{}, Shape{0}}) {
        const int64_t rows = ElementCount(leading);
        SCOPED_TRACE(absl::StrCat(size, " ranks, rows ", FormatShape(leading)));
        Shape shape = leading;
        shape.push_back(2 * size);
        const Models sequence = Each(shape, Side::kOwn, type);
        Models matrices = sequence;
        for (TensorModel& matrix : matrices) matrix.shape = {rows, 2 * size};
        Models hidden;
        for (int rank = 0; rank < size; ++rank) {
          Models blocks;
          for (const TensorModel& matrix : matrices) {
            blocks.push_back(Slice(matrix, 1, 2 * rank, 2));
          }
          hidden.push_back(worker::Join(blocks, 0));
        }
        ExpectSame(
            Call(sequence, [](client::Group& group,
                              const Tensor& tensor) { return SequenceToHidden(group, tensor); }),
            hidden);
        ExpectSame(
            Call(hidden, [](client::Group& group,
                            const Tensor& tensor) { return HiddenToSequence(group, tensor); }),
            matrices);
        // Rows in several dimensions, of any strides.
        for (TensorModel& model : hidden) model.shape = {size, rows, 2};
        ExpectSame(
            Call(hidden, [](client::Group& group,
                            const Tensor& tensor) { return HiddenToSequence(group, tensor); }),
            matrices);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(TensorParallelTest, IdentitiesCopyNothing) {
  MakeGroup(2);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const Tensor tensor = Upload(group, Tensor::Zeros(DataType::kF32, {2, 3}));
    COHORT_ASSIGN_OR_RETURN(const Tensor forward, CopyRegion(group).Forward(tensor));
    COHORT_ASSIGN_OR_RETURN(const Tensor backward, ReduceRegion(group).Backward(tensor));
    EXPECT_EQ(forward.data(), tensor.data());
    EXPECT_EQ(backward.data(), tensor.data());
    return absl::OkStatus();
  }));
}

TEST_P(TensorParallelTest, OneRanksWrongArgumentFailsOnAllRanks) {
  using Body = std::function<absl::Status(client::Group&, const Tensor&)>;
  struct Case {
    Shape good, bad;
    std::string says;
    Body body;
  };
  const std::vector<Case> cases = {
      {{8, 4},
       {8, 3},
       "3, is not a multiple",
       [](client::Group& group, const Tensor& tensor) {
         return ReduceScatterLastDim(group).Forward(tensor).status();
       }},
      {{8, 4},
       {7, 4},
       "7, is not a multiple",
       [](client::Group& group, const Tensor& tensor) {
         return SequenceReduceScatter(group).Forward(tensor).status();
       }},
      {{8, 4},
       {7, 4},
       "7, is not a multiple",
       [](client::Group& group, const Tensor& tensor) {
         return SequenceGather(group).Backward(tensor).status();
       }},
      {{8, 4},
       {7, 4},
       "7, is not a multiple",
       [](client::Group& group, const Tensor& tensor) {
         return AllToAllRegion(group).Forward(tensor).status();
       }},
      {{8, 4},
       {},
       "of a single element",
       [](client::Group& group, const Tensor& tensor) {
         return GatherRegion(group).Forward(tensor).status();
       }},
      {{8, 4},
       {8, 6, 3},
       "3 columns are not a multiple",
       [](client::Group& group, const Tensor& tensor) {
         return SequenceToHidden(group, tensor).status();
       }},
      {{8, 4},
       {3, 3, 4},
       "9 rows are not a multiple",
       [](client::Group& group, const Tensor& tensor) {
         return HiddenToSequence(group, tensor).status();
       }},
      {{8, 4},
       {},
       "it has no dimension",
       [](client::Group& group, const Tensor& tensor) {
         return HiddenToSequence(group, tensor).status();
       }},
      {{8, 4},
       {7},
       "they are not those of a tensor",
       [](client::Group& group, const Tensor& tensor) {
         return Gather1D(group, tensor, {group.size(), 32}).status();
       }},
      {{8, 4},
       {7, 4},
       "the extent of dimension 0 is 7",
       [](client::Group& group, const Tensor& tensor) {
         const Sizes sizes(static_cast<size_t>(group.size()), 8);
         return SequenceGather(group, {.sizes = sizes}).Forward(tensor).status();
       }},
  };
  for (const int size : {2, 4}) {
    MakeGroup(size);
    for (const Case& one : cases) {
      for (const int bad : {-1, size - 1}) {  // all of them, or the last
        const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
          const bool is_bad = bad < 0 || group.rank() == bad;
          return one.body(
              group, Upload(group, Tensor::Zeros(DataType::kF32, is_bad ? one.bad : one.good)));
        });
        for (const absl::Status& status : statuses) {
          EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
          EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
          EXPECT_EQ(status, statuses[0]);
        }
      }
    }
    // The group goes on.
    random_.seed(1);
    const Models rows = Each({size, 2});
    ExpectSame(Call(Parts(rows[0], 0, Sizes(static_cast<size_t>(size), 1)),
                    [](client::Group& group, const Tensor& tensor) {
                      return SequenceGather(group).Forward(tensor);
                    }),
               Models(static_cast<size_t>(size), rows[0]));
  }
}

// These errors need no other rank.
TEST_P(TensorParallelTest, ErrorsDescribeAnInvalidSlice) {
  MakeGroup(2);
  const auto expect_wrong = [](const absl::StatusOr<Tensor>& result, const std::string& says) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(says));
  };
  client::Group& group = rank(1);
  const Tensor tensor = Upload(group, Tensor::Zeros(DataType::kF32, {3, 5}));
  expect_wrong(ScatterRegion(group).Forward(tensor), "5, is not a multiple of 2");
  expect_wrong(GatherRegion(group).Backward(tensor), "5, is not a multiple of 2");
  expect_wrong(SequenceScatter(group).Forward(tensor), "3, is not a multiple of 2");
  expect_wrong(Split1D(group, tensor), "15 elements are not a multiple of 2");
  expect_wrong(SequenceGather(group, {.tensor_parallel_output_grad = false, .sizes = Sizes{1, 2}})
                   .Backward(tensor),
               "sizes are not taken");
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorParallelTest, ::testing::ValuesIn(cohort::testing::kForms),
                         FormName);

}  // namespace
}  // namespace cohort::parallel
