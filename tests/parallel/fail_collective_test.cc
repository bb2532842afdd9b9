// A rank that cannot take part fails the collective: all ranks get the same error at once, and go
// on. Also copies on one rank.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;

class FailCollectiveTest : public ParallelTest {
 protected:
  Tensor F32(client::Group& group, Shape shape) {
    return Upload(group, Tensor::Zeros(DataType::kF32, std::move(shape)));
  }
  // Expects that all ranks get the same INVALID_ARGUMENT, which has all of `said`, and that the
  // group works on.
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
      const Tensor tensor = F32(group, {70, 3});
      return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
    }));
  }
};

TEST_P(FailCollectiveTest, InvalidArgumentsOfOneRankFailAllRanks) {
  for (const int size : {2, 4}) {
    MakeGroup(size);
    const int last = size - 1;
    const std::string who = absl::StrCat("rank ", last, " ");
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = F32(group, {5000});
          return group.Broadcast(tensor, group.rank() == last ? size : 0);
        },
        {who, "broadcast of f32 [5000]", absl::StrCat("root ", size, " is not in 0..", last)});
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = F32(group, {5000});
          return group.Reduce(tensor, tensor, {ReduceOp::kSum}, group.rank() == last ? -1 : 0);
        },
        {who, "root -1 is not in 0.."});
    ExpectRefused(
        [&](client::Group& group) {
          return group.AllGather(F32(group, {2, 3}), F32(group, {2, 3 * size}),
                                 group.rank() == last ? 7 : 1);
        },
        {who, "dimension"});
    ExpectRefused(
        [&](client::Group& group) {
          const int64_t rows = group.rank() == last ? size + 1 : size;
          return group.ReduceScatter(F32(group, {rows, 3}), F32(group, {1, 3}), 0,
                                     {ReduceOp::kSum});
        },
        {who, "not a multiple of"});
    ExpectRefused(
        [&](client::Group& group) {
          const client::Sizes sizes(static_cast<size_t>(group.rank() == last ? size + 1 : size), 1);
          return group.AllGatherV(F32(group, {1}), F32(group, {size}), 0, sizes);
        },
        {who, absl::StrCat(size + 1, " sizes")});
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = F32(group, {8});
          return group.AllReduce(tensor, tensor,
                                 {group.rank() == last ? ReduceOp::kBitAnd : ReduceOp::kSum});
        },
        {who, "bit_and"});
    ExpectRefused(
        [&](client::Group& group) {
          return group.rank() == last ? group.ExchangeSizes(-1).status()
                                      : group.ExchangeSizes(1).status();
        },
        {who, "a size of -1"});
  }
}

TEST_P(FailCollectiveTest, InvalidArgumentsOfAllRanksAreNamed) {
  MakeGroup(3);
  // All ranks give the same wrong root.
  ExpectRefused([&](client::Group& group) { return group.Broadcast(F32(group, {4}), 3); },
                {"broadcast of f32 [4]", "root 3 is not in 0..2"});
  // Each rank gives another wrong root.
  ExpectRefused(
      [&](client::Group& group) { return group.Broadcast(F32(group, {4}), 3 + group.rank()); },
      {"rank 0 broadcast of f32 [4]", "root 3 is not in 0..2; rank 1 broadcast of f32 [4]",
       "root 4"});
}

TEST_P(FailCollectiveTest, ItReplacesACollective) {
  MakeGroup(4);
  ExpectRefused(
      [&](client::Group& group) {
        if (group.rank() == 2)
          return group.FailCollective(absl::NotFoundError("the router has no weights"));
        const Tensor tensor = F32(group, {64, 1024});
        return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
      },
      {"rank 2 the router has no weights", "rank 0 all_reduce"});
  MakeGroup(1);
  ExpectRefused(
      [&](client::Group& group) { return group.FailCollective(absl::AbortedError("no")); }, {"no"});
}

TEST_P(FailCollectiveTest, ARankThatDoesNotComeIsNotWaitedForLong) {
  MakeGroup(3, absl::Seconds(1));
  const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
    if (group.rank() == 1) return absl::OkStatus();
    return group.FailCollective(absl::InvalidArgumentError("no such layer"));
  });
  for (const int rank : {0, 2}) {
    const absl::Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("no such layer"));
  }
}

TEST_P(FailCollectiveTest, CopiesOfOneRank) {
  MakeGroup(2);
  const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
    if (group.rank() == 1) return absl::OkStatus();  // a copy asks no other rank
    const Tensor numbers = Tensor::Zeros(DataType::kI32, {4, 6});
    for (int i = 0; i < 24; ++i) static_cast<int32_t*>(numbers.data())[i] = i;
    const Tensor there = Upload(group, numbers);
    const Tensor columns = F32(group, {6});
    // A column of a transposed view, between places.
    const Tensor turned = there.Permute({1, 0});
    const Tensor out = Upload(group, Tensor::Zeros(DataType::kI32, {6, 4}));
    const absl::Status turning = group.Copy(turned, out);
    EXPECT_EQ(ElementsOf(Download(group, out)), ElementsOf(numbers.Permute({1, 0})));
    const Tensor here = Tensor::Zeros(DataType::kI32, {6, 4});
    absl::Status status = group.Copy(out, here);
    status.Update(turning);
    EXPECT_EQ(ElementsOf(here), ElementsOf(numbers.Permute({1, 0})));
    EXPECT_EQ(group.Copy(out, columns).code(), absl::StatusCode::kInvalidArgument);
    // Many copies at once.
    std::vector<client::TensorCopy> rows;
    for (int row = 0; row < 4; ++row) {
      rows.push_back({*here.Reshape({4, 6})->Narrow(0, row, 1), *there.Narrow(0, 3 - row, 1)});
    }
    status.Update(group.CopyAll(rows));
    EXPECT_EQ(ElementsOf(*Download(group, there).Narrow(0, 3, 1)),
              ElementsOf(*here.Reshape({4, 6})->Narrow(0, 0, 1)));
    status.Update(group.CopyAll({}));
    return status;
  });
  ExpectOk(statuses);
}

TEST_P(FailCollectiveTest, NoTensorHasANegativeExtent) {
  MakeGroup(1);
  const Device device = GetParam() == Form::kDevice ? rank(0).device() : Device::Host();
  for (const Shape& shape : {Shape{-1}, Shape{-1, -4}, Shape{3, -2}}) {
    for (const Device place : {Device::Host(), device}) {
      EXPECT_EQ(rank(0).Allocate(DataType::kF32, shape, place).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST_P(FailCollectiveTest, RanksSayOnWhichMachineTheyRun) {
  for (const int size : {1, 3}) {
    MakeGroup(size);
    for (int of = 0; of < size; ++of) {
      ASSERT_EQ(rank(of).hosts().size(), static_cast<size_t>(size));
      for (const std::string& host : rank(of).hosts()) {
        EXPECT_FALSE(host.empty());
        EXPECT_EQ(host, rank(0).hosts()[0]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, FailCollectiveTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
