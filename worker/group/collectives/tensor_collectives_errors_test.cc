// Errors when ranks disagree, or when one rank's arguments are invalid. The group stays usable
// afterwards. One file, though long: its cases share one check of the errors that all ranks get.
#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/mismatch.h"
#include "worker/group/collectives/mismatch_text.h"
#include "worker/group/testing/collective_world.h"
#include "worker/group/testing/typed_collectives.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Reduction kSum = {ReduceOp::kSum};

Tensor F32(Shape shape) { return Tensor::Zeros(DataType::kF32, std::move(shape)); }

// Runs collectives by different algorithms, and checks their results.
void ExpectUsable(CollectiveWorld& world) {
  ExpectOk(world.Run([&](TensorCollectives& collectives) {
    const Tensor ones = F32({300, 2});
    for (int64_t i = 0; i < ones.count(); ++i) static_cast<float*>(ones.data())[i] = 1;
    const Tensor sum = F32({300, 2});
    absl::Status status = AllReduce(collectives, ones, sum, kSum, Soon());
    if (!status.ok()) return status;
    EXPECT_EQ(static_cast<float*>(sum.data())[599], static_cast<float>(collectives.size()));
    client::Sizes sizes(static_cast<size_t>(collectives.size()), 1);
    sizes[0] = 4;
    const int64_t own = sizes[static_cast<size_t>(collectives.rank())];
    const Tensor gathered = F32({2, collectives.size() + 3});
    status = AllGatherV(collectives, *ones.Narrow(0, 0, own)->Reshape({2, own}), gathered, 1, sizes,
                        Soon());
    EXPECT_EQ(static_cast<float*>(gathered.data())[gathered.count() - 1], 1);
    return status;
  }),
           "behind it");
}

class DisagreementTest : public ::testing::TestWithParam<Medium> {
 protected:
  // All ranks get the same error, which names the calls of two ranks, and the group stays usable.
  void Expect(const std::function<absl::Status(TensorCollectives&)>& body,
              const std::vector<std::string>& said) {
    const std::vector<absl::Status> statuses = world_.Run(body);
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    for (const std::string& text : said) {
      EXPECT_THAT(std::string(statuses[0].message()), HasSubstr(text));
    }
    ExpectUsable(world_);
  }

  // A rank gets the error at once unless its eager broadcast had returned; all ranks get one error
  // from the next call.
  void ExpectOfBroadcasts(const std::function<absl::Status(TensorCollectives&)>& body,
                          const std::vector<std::string>& said) {
    const std::vector<absl::Status> at_once = world_.Run(body);
    const std::vector<absl::Status> later = world_.Run([](TensorCollectives& collectives) {
      return AllReduce(collectives, F32({4}), F32({4}), kSum, Soon());
    });
    const bool some_went_on = std::any_of(at_once.begin(), at_once.end(),
                                          [](const absl::Status& status) { return status.ok(); });
    for (size_t rank = 0; rank < at_once.size(); ++rank) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      EXPECT_EQ(later[rank].message(), later[0].message());
      EXPECT_EQ(later[rank].ok(), !some_went_on) << later[rank];
      const absl::Status& status = at_once[rank].ok() ? later[rank] : at_once[rank];
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      for (const std::string& text : said) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(text));
      }
    }
    EXPECT_FALSE(std::all_of(at_once.begin(), at_once.end(),
                             [](const absl::Status& status) { return status.ok(); }));
    ExpectUsable(world_);
  }

  CollectiveWorld world_{GetParam(), 3};
};

TEST_P(DisagreementTest, OnShapesOfAsManyElements) {
  Expect(
      [](TensorCollectives& collectives) {
        const Tensor tensor = collectives.rank() == 1 ? F32({3, 4}) : F32({2, 6});
        return AllReduce(collectives, tensor, tensor, kSum, Soon());
      },
      {"rank 0 all_reduce of f32 [2, 6] by sum; rank 1 all_reduce of f32 [3, 4] by sum"});
  ExpectOfBroadcasts(
      [](TensorCollectives& collectives) {
        return Broadcast(collectives, collectives.rank() == 2 ? F32({1, 6}) : F32({6}), 1, Soon());
      },
      {"rank 2 broadcast of ", ", root 1"});
  // This broadcast is too large to be eager.
  Expect(
      [](TensorCollectives& collectives) {
        return Broadcast(collectives, collectives.rank() == 2 ? F32({1, 6000}) : F32({6000}), 1,
                         Soon());
      },
      {"broadcast of f32 [6000], root 1", "rank 2 broadcast of f32 [1, 6000], root 1"});
  Expect(
      [](TensorCollectives& collectives) {
        const Tensor tensor = collectives.rank() == 2 ? F32({6, 2}) : F32({3, 4});
        const Tensor output = F32({tensor.shape()[0], tensor.shape()[1]});
        return AllToAll(collectives, tensor, output, Soon());
      },
      {"all_to_all of f32 [3, 4]", "all_to_all of f32 [6, 2]"});
  Expect(
      [](TensorCollectives& collectives) {
        const bool odd = collectives.rank() == 0;
        return Scatter(collectives, odd ? F32({6, 2}) : F32({3, 4}),
                       odd ? F32({2, 2}) : F32({1, 4}), 0, 0, Soon());
      },
      {"rank 0 scatter of f32 [2, 2] along dimension 0, root 0; rank 1 scatter of f32 [1, 4]"});
}

TEST_P(DisagreementTest, OnShapesOfOtherCounts) {
  Expect(
      [](TensorCollectives& collectives) {
        const Tensor tensor = F32({100, collectives.rank() == 2 ? 2001 : 2000});
        return AllReduce(collectives, tensor, tensor, kSum, Soon());
      },
      {"rank 0 all_reduce of f32 [100, 2000]", "rank 2 all_reduce of f32 [100, 2001]"});
}

// Lists of as many elements, so that only the digest differs.
TEST_P(DisagreementTest, OnListsOfTensors) {
  const auto coalesced = [](TensorCollectives& collectives, const std::vector<Shape>& shapes) {
    std::vector<Tensor> tensors;
    for (const Shape& shape : shapes) tensors.push_back(F32(shape));
    return AllReduceCoalesced(collectives, tensors, tensors, kSum, Soon());
  };
  Expect(
      [&](TensorCollectives& collectives) {
        return collectives.rank() == 1 ? coalesced(collectives, {{2}, {3}})
                                       : coalesced(collectives, {{3}, {2}});
      },
      {"rank 0 all_reduce_coalesced of f32 [3], [2] by sum; rank 1 all_reduce_coalesced of f32 "
       "[2], [3] by sum"});
  // One rank has more tensors, so large that each has an exchange of its own.
  Expect(
      [&](TensorCollectives& collectives) {
        return collectives.rank() == 2 ? coalesced(collectives, {{20000}, {20000}, {20000}})
                                       : coalesced(collectives, {{20000}, {20000}});
      },
      {"rank 0 all_reduce_coalesced of f32 [20000], [20000] by sum; rank 2 all_reduce_coalesced "
       "of f32 [20000], [20000], [20000] by sum"});
  Expect(
      [&](TensorCollectives& collectives) {
        return collectives.rank() == 1 ? AllReduce(collectives, F32({4}), F32({4}), kSum, Soon())
                                       : coalesced(collectives, {{4}});
      },
      {"rank 0 all_reduce_coalesced of f32 [4] by sum; rank 1 all_reduce of f32 [4] by sum"});
}

TEST_P(DisagreementTest, OnDimensions) {
  Expect(
      [](TensorCollectives& collectives) {
        const bool odd = collectives.rank() == 1;
        return AllGather(collectives, F32({2, 2}), odd ? F32({2, 6}) : F32({6, 2}), odd ? 1 : 0,
                         Soon());
      },
      {"along dimension 0; rank 1", "along dimension 1"});
  Expect(
      [](TensorCollectives& collectives) {
        const bool odd = collectives.rank() == 1;
        return ReduceScatter(collectives, F32({3, 3}), odd ? F32({3, 1}) : F32({1, 3}),
                             odd ? -1 : 0, kSum, Soon());
      },
      {"reduce_scatter of f32 [3, 3] along dimension 0 by sum; rank 1", "along dimension 1 by"});
  // The same dimension, counted from the other end.
  ExpectOk(world_.Run([](TensorCollectives& collectives) {
    return AllGather(collectives, F32({2, 2}), F32({2, 6}), collectives.rank() == 1 ? 1 : -1,
                     Soon());
  }),
           "all_gather");
}

TEST_P(DisagreementTest, OnTypesRootsAndReductions) {
  Expect(
      [](TensorCollectives& collectives) {
        const Tensor tensor =
            Tensor::Zeros(collectives.rank() == 2 ? DataType::kF16 : DataType::kBF16, {4});
        return AllReduce(collectives, tensor, tensor, kSum, Soon());
      },
      {"rank 0 all_reduce of bf16 [4]", "rank 2 all_reduce of f16 [4]"});
  Expect(
      [](TensorCollectives& collectives) {
        return Reduce(collectives, F32({4}), F32({4}), kSum, collectives.rank() == 1 ? 1 : 0,
                      Soon());
      },
      {"root 0; rank 1", "root 1"});
  Expect(
      [](TensorCollectives& collectives) {
        return Gather(collectives, F32({4}), F32({12}), 0, collectives.rank() == 1 ? 1 : 0, Soon());
      },
      {"gather of f32 [4] along dimension 0, root 0", "root 1"});
  Expect(
      [](TensorCollectives& collectives) {
        const Reduction reduction = {collectives.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum};
        return AllReduce(collectives, F32({4}), F32({4}), reduction, Soon());
      },
      {"by sum; rank 1", "by max"});
  Expect(
      [](TensorCollectives& collectives) {
        const Reduction reduction = {ReduceOp::kPreMulSum, collectives.rank() == 1 ? 0.25 : 0.5};
        return AllReduce(collectives, F32({4}), F32({4}), reduction, Soon());
      },
      {"by pre_mul_sum times 0.5; rank 1", "times 0.25"});
}

TEST_P(DisagreementTest, OnABroadcastThatARankCannotTakePartIn) {
  for (const int wrong : {1, 2}) {  // the root, and another rank
    ExpectOfBroadcasts(
        [wrong](TensorCollectives& collectives) {
          if (collectives.rank() != wrong) return Broadcast(collectives, F32({6}), 1, Soon());
          return collectives.FailOnAllRanks("broadcast: it has no tensor", Soon());
        },
        {absl::StrCat("rank ", wrong, " broadcast: it has no tensor")});
  }
}

// The next call is wrong too: all ranks fail it once, and are in step after it.
TEST_P(DisagreementTest, OnABroadcastAndTheCallAfterIt) {
  const auto wrong = [](TensorCollectives& collectives) {
    return collectives.FailOnAllRanks("broadcast: it has no tensor", Soon());
  };
  world_.Run([&](TensorCollectives& collectives) {
    return collectives.rank() == 2 ? wrong(collectives)
                                   : Broadcast(collectives, F32({6}), 1, Soon());
  });
  for (const absl::Status& status : world_.Run([&](TensorCollectives& collectives) {
         return collectives.rank() == 0 ? wrong(collectives) : Barrier(collectives, Soon());
       })) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  ExpectUsable(world_);
}

// A call that failed before, and that all ranks know of, is not the one that they hear of later.
TEST_P(DisagreementTest, OnABroadcastAfterAnArgumentThatWasRefused) {
  const std::string refused = "by bit_and";
  for (const absl::Status& status : world_.Run([&](TensorCollectives& collectives) {
         const Reduction reduction = {collectives.rank() == 1 ? ReduceOp::kBitAnd : ReduceOp::kSum};
         const absl::Status own =
             AllReduce(collectives, F32({4}), F32({4}), reduction, Soon());
         return collectives.rank() == 1 ? collectives.FailOnAllRanks(own.message(), Soon()) : own;
       })) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(refused));
  }
  world_.Run([](TensorCollectives& collectives) {
    return Broadcast(collectives, F32({collectives.rank() == 1 ? 5 : 3}), 0, Soon());
  });
  for (const absl::Status& status : world_.Run(
           [](TensorCollectives& collectives) { return Barrier(collectives, Soon()); })) {
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(refused)));
  }
  ExpectUsable(world_);
}

TEST_P(DisagreementTest, OnCollectives) {
  ExpectOfBroadcasts(
      [](TensorCollectives& collectives) {
        return collectives.rank() == 2 ? Broadcast(collectives, F32({4}), 0, Soon())
                                       : AllReduce(collectives, F32({4}), F32({4}), kSum, Soon());
      },
      {"all_reduce of ", "rank 2 broadcast of "});
  // These calls differ only in their checks.
  Expect(
      [](TensorCollectives& collectives) {
        return collectives.rank() == 1
                   ? AllGatherV(collectives, F32({4}), F32({12}), 0, {4, 4, 4}, Soon())
                   : AllGather(collectives, F32({4}), F32({12}), 0, Soon());
      },
      {"all_gather of f32 [4] along dimension 0; rank 1 all_gather_v of f32 [*] along dimension 0, "
       "sizes [4, 4, 4]"});
  Expect(
      [](TensorCollectives& collectives) {
        if (collectives.rank() == 1) return ExchangeSizes(collectives, 1, Soon()).status();
        const Tensor output = Tensor::Zeros(DataType::kI64, {3});
        return AllGather(collectives, Tensor::Zeros(DataType::kI64, {1}), output, 0, Soon());
      },
      {"all_gather of i64 [1] along dimension 0; rank 1 exchange_sizes"});
  Expect(
      [](TensorCollectives& collectives) {
        return collectives.rank() == 0 ? Barrier(collectives, Soon())
                                       : ExchangeSizes(collectives, 1, Soon()).status();
      },
      {"rank 0 barrier; rank 1 exchange_sizes"});
}

// Small and large, equal and different sizes: the mismatch is found before any data moves.
TEST_P(DisagreementTest, OnSizes) {
  for (const int64_t row : {int64_t{3}, int64_t{20000}}) {
    const std::string shape = absl::StrCat("f32 [*, ", row, "] along dimension 0");
    const auto other = [row](TensorCollectives& collectives, const client::Sizes& odd,
                             const client::Sizes& even) {
      const client::Sizes& sizes = collectives.rank() == 1 ? odd : even;
      const int64_t own = sizes[static_cast<size_t>(collectives.rank())];
      return std::make_tuple(sizes, F32({own, row}), F32({sizes[0] + sizes[1] + sizes[2], row}));
    };
    Expect(
        [&](TensorCollectives& collectives) {
          const auto [sizes, part, whole] = other(collectives, {2, 2, 3}, {1, 2, 4});
          return AllGatherV(collectives, part, whole, 0, sizes, Soon());
        },
        {absl::StrCat("rank 0 all_gather_v of ", shape,
                      ", sizes [1, 2, 4]; rank 1 all_gather_v of ", shape, ", sizes [2, 2, 3]")});
    Expect(
        [&](TensorCollectives& collectives) {
          const auto [sizes, part, whole] = other(collectives, {2, 2, 2}, {1, 2, 3});
          return AllGatherV(collectives, part, whole, 0, sizes, Soon());
        },
        {"sizes [1, 2, 3]", "sizes [2, 2, 2]"});
    Expect(
        [&](TensorCollectives& collectives) {
          const auto [sizes, part, whole] = other(collectives, {2, 2, 3}, {3, 2, 2});
          return ReduceScatterV(collectives, whole, part, 0, sizes, kSum, Soon());
        },
        {absl::StrCat("rank 0 reduce_scatter_v of ", shape, " by sum, sizes [3, 2, 2]"),
         "sizes [2, 2, 3]"});
    Expect(
        [&](TensorCollectives& collectives) {
          const auto [sizes, part, whole] = other(collectives, {2, 2, 3}, {3, 2, 2});
          return GatherV(collectives, part, whole, 0, sizes, 2, Soon());
        },
        {absl::StrCat("rank 0 gather_v of ", shape, ", root 2, sizes [3, 2, 2]"),
         "sizes [2, 2, 3]"});
    Expect(
        [&](TensorCollectives& collectives) {
          const auto [sizes, part, whole] = other(collectives, {3, 2, 2}, {3, 2, 2});
          return GatherV(collectives, part, whole, 0, sizes, collectives.rank() == 1 ? 0 : 2,
                         Soon());
        },
        {"root 2, sizes [3, 2, 2]; rank 1", "root 0, sizes"});
  }
}

TEST_P(DisagreementTest, OnTheSizesBetweenTwoRanks) {
  for (const int64_t row : {int64_t{2}, int64_t{20000}}) {
    Expect(
        [&](TensorCollectives& collectives) {
          // Rank 1 expects one element more from rank 2 than that sends.
          const client::Sizes sent = {1, 1, 1};
          const client::Sizes expected = {1, 1, collectives.rank() == 1 ? 2 : 1};
          return AllToAllV(collectives, F32({3, row}), sent,
                           F32({collectives.rank() == 1 ? 4 : 3, row}), expected, Soon());
        },
        {"rank 2 sends 1 to rank 1, which expects 2 from it"});
  }
  Expect(
      [](TensorCollectives& collectives) {
        const int64_t row = collectives.rank() == 2 ? 5 : 4;
        return AllToAllV(collectives, F32({3, row}), {1, 1, 1}, F32({3, row}), {1, 1, 1}, Soon());
      },
      {"rank 0 all_to_all_v of f32 [*, 4] along dimension 0; rank 2 all_to_all_v of f32 [*, 5]"});
}

// A receive gets the matching message, or an error that names both.
TEST_P(DisagreementTest, OnMessages) {
  const std::vector<absl::Status> statuses = world_.Run([](TensorCollectives& collectives) {
    if (collectives.rank() == 2) return absl::OkStatus();
    const Tensor columns = *F32({4, 4}).Narrow(1, 0, 3);
    const client::TensorTransfer transfer = collectives.rank() == 0
                                                ? client::TensorTransfer{true, 1, columns}
                                                : client::TensorTransfer{false, 0, F32({4, 4})};
    return collectives.Exchange({transfer}, Soon());
  });
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("receive of 16 f32 from rank 0"));
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("12 f32"));
  ExpectUsable(world_);
}

// A message that was not received is not taken for a part of a collective.
TEST_P(DisagreementTest, OnWhetherAMessageComesFirst) {
  const std::vector<absl::Status> statuses = world_.Run([](TensorCollectives& collectives) {
    if (collectives.rank() == 0) {
      const absl::Status sent = collectives.Exchange({{true, 1, F32({1, 4})}}, Soon());
      if (!sent.ok()) return sent;
    }
    client::Sizes sizes = {1, 1, 1};
    sizes[static_cast<size_t>(collectives.rank())] = 2;
    return AllToAllV(collectives, F32({4, 4}), sizes, F32({4, 4}), sizes, Soon());
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("in a call of another kind"));
  EXPECT_TRUE(statuses[2].ok()) << statuses[2];
}

// Each rank knows only its own sizes: those of rank 1 are equal.
TEST_P(DisagreementTest, AllToAllMixesWithAllToAllV) {
  const std::vector<std::vector<int64_t>> sizes = {{2, 1, 0}, {1, 1, 1}, {0, 1, 2}};
  const std::vector<std::vector<float>> expected = {{0, 0, 1}, {0, 1, 2}, {1, 2, 2}};
  for (int repeat = 0; repeat < 3; ++repeat) {
    const std::vector<absl::Status> statuses = world_.Run([&](TensorCollectives& collectives) {
      const auto rank = static_cast<size_t>(collectives.rank());
      const Tensor input = F32({3});
      for (int i = 0; i < 3; ++i) static_cast<float*>(input.data())[i] = static_cast<float>(rank);
      const Tensor output = F32({3});
      const absl::Status status =
          rank == 1 ? AllToAll(collectives, input, output, Soon())
                    : AllToAllV(collectives, input, sizes[rank], output, sizes[rank], Soon());
      const auto* const got = static_cast<const float*>(output.data());
      if (status.ok()) {
        EXPECT_EQ(std::vector<float>(got, got + 3), expected[rank]);
      }
      return status;
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
  // A mix with a third collective, or with another type, is an error.
  Expect(
      [](TensorCollectives& collectives) {
        if (collectives.rank() == 0) return AllToAll(collectives, F32({3}), F32({3}), Soon());
        if (collectives.rank() == 1) return Broadcast(collectives, F32({6000}), 0, Soon());
        return AllToAllV(collectives, F32({3}), {1, 1, 1}, F32({3}), {1, 1, 1}, Soon());
      },
      {"all_to_all of f32 [3]", "broadcast of f32 [6000]"});
  Expect(
      [](TensorCollectives& collectives) {
        const Tensor other = Tensor::Zeros(DataType::kF64, {3});
        const Tensor output = Tensor::Zeros(DataType::kF64, {3});
        if (collectives.rank() == 0) return AllToAll(collectives, other, output, Soon());
        return AllToAllV(collectives, F32({3}), {1, 1, 1}, F32({3}), {1, 1, 1}, Soon());
      },
      {"all_to_all_v of f64", "all_to_all_v of f32"});
}

INSTANTIATE_TEST_SUITE_P(Media, DisagreementTest,
                         ::testing::Values(Medium::kHeap, Medium::kProcess, Medium::kSocket),
                         [](const auto& info) { return NameOf(info.param); });

// --- One rank alone.

TEST(OwnMistakesTest, AreFoundBeforeAnythingIsCalled) {
  CollectiveWorld world(Medium::kHeap, 2);
  TensorCollectives& collectives = world.rank(0);
  const auto refuse = [](const absl::Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  const Tensor t = F32({4, 3});
  const Tensor scalar = F32({});

  refuse(AllReduce(collectives, t, F32({3, 4}), kSum, Soon()),
         "all_reduce of f32 [4, 3] by sum: the output is f32 [3, 4] and should be f32 [4, 3]");
  refuse(AllReduce(collectives, t, Tensor::Zeros(DataType::kF64, {4, 3}), kSum, Soon()),
         "the output is f64 [4, 3] and should be f32 [4, 3]");
  refuse(AllReduce(collectives, Tensor(nullptr, DataType::kF32, {4, 3}), t, kSum, Soon()),
         "the input, f32 [4, 3], has no memory");
  refuse(AllReduce(collectives, t, Tensor(nullptr, DataType::kF32, {4, 3}), kSum, Soon()),
         "the output, f32 [4, 3], has no memory");
  refuse(AllReduce(collectives, t, Tensor::Strided(t.data(), DataType::kF32, {4, 3}, {0, 1}), kSum,
                   Soon()),
         "overlap in memory");
  refuse(AllReduce(collectives, t, t, {ReduceOp::kBitAnd}, Soon()),
         "f32 cannot be reduced by bit_and");
  const Tensor complex = Tensor::Zeros(DataType::kC64, {2});
  refuse(AllReduce(collectives, complex, complex, kSum, Soon()), "c64 cannot be reduced by sum");

  refuse(AllReduceCoalesced(collectives, {}, {}, kSum, Soon()), "0 outputs for 0 inputs");
  refuse(AllReduceCoalesced(collectives, {t, t}, {t}, kSum, Soon()), "1 outputs for 2 inputs");
  refuse(AllReduceCoalesced(collectives, {t, scalar}, {t, t}, kSum, Soon()),
         "all_reduce_coalesced of f32 [4, 3], [] by sum: the output is f32 [4, 3] and should be "
         "f32 [] (tensor 1)");
  refuse(AllReduceCoalesced(collectives, {t, complex}, {t, complex}, kSum, Soon()),
         "the input is c64 [2] and should be f32 [2] (tensor 1)");
  const Tensor ten = F32({10});
  refuse(AllReduceCoalesced(collectives, {t, *ten.Narrow(0, 0, 6)}, {t, *ten.Narrow(0, 4, 6)}, kSum,
                            Soon()),
         "input and output overlap and are not the same (tensor 1)");
  refuse(AllReduceCoalesced(collectives, {t, t}, {t, t}, {ReduceOp::kBitAnd}, Soon()),
         "f32 cannot be reduced by bit_and");

  refuse(Reduce(collectives, t, t, kSum, 2, Soon()), "root 2 is not in 0..1");
  refuse(Broadcast(collectives, t, -1, Soon()), "root -1 is not in 0..1");
  refuse(Gather(collectives, t, t, 0, -1, Soon()), "root -1 is not in 0..1");
  refuse(Scatter(collectives, t, t, 0, 7, Soon()), "root 7 is not in 0..1");
  refuse(GatherV(collectives, t, t, 0, {4, 4}, 2, Soon()), "root 2 is not in 0..1");

  for (const int dim : {2, -3}) {
    refuse(AllGather(collectives, t, t, dim, Soon()),
           absl::StrCat("all_gather of f32 [4, 3]: there is no dimension ", dim));
    refuse(ReduceScatter(collectives, t, t, dim, kSum, Soon()), "there is no dimension");
    refuse(Gather(collectives, t, t, dim, 0, Soon()), "there is no dimension");
    refuse(Scatter(collectives, t, t, dim, 0, Soon()), "there is no dimension");
    refuse(AllGatherV(collectives, t, t, dim, {4, 4}, Soon()), "there is no dimension");
    refuse(ReduceScatterV(collectives, t, t, dim, {4, 4}, kSum, Soon()), "there is no dimension");
    refuse(GatherV(collectives, t, t, dim, {4, 4}, 0, Soon()), "there is no dimension");
  }
  refuse(AllGather(collectives, scalar, scalar, 0, Soon()), "the shape is []");
  refuse(ReduceScatter(collectives, scalar, scalar, -1, kSum, Soon()), "the shape is []");
  refuse(AllToAll(collectives, scalar, scalar, Soon()), "the shape is []");
  refuse(AllToAllV(collectives, scalar, {1, 0}, scalar, {1, 0}, Soon()), "the shape is []");

  refuse(AllGather(collectives, t, F32({4, 3}), 1, Soon()),
         "all_gather of f32 [4, 3] along dimension 1: the output is f32 [4, 3] and should be f32 "
         "[4, 6]");
  refuse(ReduceScatter(collectives, t, F32({4, 1}), 1, kSum, Soon()),
         "the extent of dimension 1 of the input, 3, is not a multiple of the 2 ranks");
  refuse(ReduceScatter(collectives, t, F32({4, 3}), 0, kSum, Soon()), "should be f32 [2, 3]");
  refuse(AllToAll(collectives, F32({3, 4}), F32({3, 4}), Soon()),
         "is not a multiple of the 2 ranks");
  refuse(AllToAll(collectives, t, t, Soon()), "overlap");
  refuse(Gather(collectives, t, F32({4, 3}), 0, 0, Soon()), "should be f32 [8, 3]");
  refuse(Scatter(collectives, t, t, 0, 0, Soon()),
         "the input is f32 [4, 3] and should be f32 [8, 3]");

  refuse(AllGatherV(collectives, t, t, 0, {4}, Soon()), "1 sizes, and not one for each of 2 ranks");
  refuse(AllGatherV(collectives, t, t, 0, {4, 4, 4}, Soon()), "3 sizes");
  refuse(AllGatherV(collectives, t, t, 0, {4, -1}, Soon()), "a size of -1 for rank 1");
  refuse(AllGatherV(collectives, t, t, 0, {4, std::numeric_limits<int64_t>::max()}, Soon()),
         "larger than memory");
  // Equal sizes are checked like other sizes.
  refuse(AllGatherV(collectives, t, F32({6, 3}), 0, {3, 3}, Soon()),
         "all_gather_v of f32 [*, 3] along dimension 0, sizes [3, 3]: the input is f32 [4, 3] and "
         "should be f32 [3, 3]");
  refuse(AllGatherV(collectives, t, F32({6, 3}), 0, {4, 3}, Soon()), "should be f32 [7, 3]");
  refuse(ReduceScatterV(collectives, t, F32({2, 3}), 0, {2, 3}, kSum, Soon()),
         "the input is f32 [4, 3] and should be f32 [5, 3]");
  refuse(ReduceScatterV(collectives, t, F32({1, 3}), 0, {2, 2}, kSum, Soon()),
         "should be f32 [2, 3]");
  refuse(GatherV(collectives, t, F32({4, 3}), 0, {4, 1}, 0, Soon()), "should be f32 [5, 3]");
  refuse(AllToAllV(collectives, t, {2, 3}, t, {2, 2}, Soon()), "should be f32 [5, 3]");
  refuse(AllToAllV(collectives, t, {2, 2}, F32({4, 2}), {2, 2}, Soon()), "should be f32 [4, 3]");
  refuse(AllToAllV(collectives, t, {2, 2}, t, {2, 2}, Soon()), "overlap");
  for (const Collective collective : {Collective::kAllToAll, Collective::kAllToAllV}) {
    CollectiveCall along_one = MakeCall(collective, t, t);
    along_one.dim = 1;
    refuse(collectives.Run(along_one, t, t, Soon()), "it divides dimension 0 alone");
  }
  refuse(ExchangeSizes(collectives, -1, Soon()).status(), "a size of -1");

  refuse(collectives.Exchange({{true, 0, t}}, Soon()), "that is this rank itself");
  refuse(collectives.Exchange({{true, 2, t}}, Soon()), "ranks are 0..1");
  refuse(collectives.Exchange({{false, -1, t}}, Soon()), "ranks are 0..1");
  refuse(collectives.Exchange({{false, 1, Tensor::Strided(t.data(), DataType::kF32, {4}, {0})}},
                              Soon()),
         "overlap in memory");

  // Large parts move directly from their offsets in the tensor.
  const Tensor large = F32({20000, 3});
  refuse(AllGatherV(collectives, *large.Narrow(0, 1, 15000), large, 0, {15000, 5000}, Soon()),
         "overlap");
  refuse(ReduceScatterV(collectives, large, *large.Narrow(0, 1, 15000), 0, {15000, 5000}, kSum,
                        Soon()),
         "overlap");
  // No refused call has waited for the other rank.
  ExpectUsable(world);
}

// On the root and on other ranks, whose outputs count nothing in a gather or reduce.
TEST(OwnMistakesTest, EachCollectiveChecksTheMemoryOfItsTensors) {
  CollectiveWorld world(Medium::kHeap, 2);
  TensorCollectives& collectives = world.rank(0);
  using Call = std::function<absl::Status(const Tensor& input, const Tensor& output)>;
  struct Case {
    const char* name;
    Shape input;
    Shape output;
    bool has_input;
    bool has_output;
    Call call;
  };
  const Shape part = {4, 3}, whole = {8, 3}, half = {2, 3};
  const client::Sizes fours = {4, 4}, twos = {2, 2};
  std::vector<Case> cases = {
      {"all_reduce", part, part, true, true,
       [&](const Tensor& in, const Tensor& out) {
         return AllReduce(collectives, in, out, kSum, Soon());
       }},
      {"all_reduce_coalesced", part, part, true, true,
       [&](const Tensor& in, const Tensor& out) {
         const Tensor good = F32(part);
         return AllReduceCoalesced(collectives, {good, in}, {good, out}, kSum, Soon());
       }},
      {"all_gather", part, whole, true, true,
       [&](const Tensor& in, const Tensor& out) {
         return AllGather(collectives, in, out, 0, Soon());
       }},
      {"all_gather_v", part, whole, true, true,
       [&](const Tensor& in, const Tensor& out) {
         return AllGatherV(collectives, in, out, 0, fours, Soon());
       }},
      {"reduce_scatter", part, half, true, true,
       [&](const Tensor& in, const Tensor& out) {
         return ReduceScatter(collectives, in, out, 0, kSum, Soon());
       }},
      {"reduce_scatter_v", part, half, true, true,
       [&](const Tensor& in, const Tensor& out) {
         return ReduceScatterV(collectives, in, out, 0, twos, kSum, Soon());
       }},
      {"all_to_all", part, part, true, true,
       [&](const Tensor& in, const Tensor& out) { return AllToAll(collectives, in, out, Soon()); }},
      {"all_to_all_v", part, part, true, true,
       [&](const Tensor& in, const Tensor& out) {
         return AllToAllV(collectives, in, twos, out, twos, Soon());
       }},
  };
  for (const int root : {0, 1}) {
    const bool is_root = root == 0;
    cases.push_back({"broadcast", part, part, is_root, !is_root,
                     [&, is_root, root](const Tensor& in, const Tensor& out) {
                       return Broadcast(collectives, is_root ? in : out, root, Soon());
                     }});
    cases.push_back(
        {"reduce", part, part, true, is_root, [&, root](const Tensor& in, const Tensor& out) {
           return Reduce(collectives, in, out, kSum, root, Soon());
         }});
    cases.push_back(
        {"gather", part, whole, true, is_root, [&, root](const Tensor& in, const Tensor& out) {
           return Gather(collectives, in, out, 0, root, Soon());
         }});
    cases.push_back(
        {"gather_v", part, whole, true, is_root, [&, root](const Tensor& in, const Tensor& out) {
           return GatherV(collectives, in, out, 0, fours, root, Soon());
         }});
    cases.push_back(
        {"scatter", whole, part, is_root, true, [&, root](const Tensor& in, const Tensor& out) {
           return Scatter(collectives, in, out, 0, root, Soon());
         }});
  }
  for (const Case& one : cases) {
    const Tensor input = F32(one.input), output = F32(one.output);
    const auto refuse = [&](const absl::Status& status, const std::string& why) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.name << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(one.name));
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    };
    const auto absent = [](const Tensor& tensor) {
      return Tensor(nullptr, tensor.type(), tensor.shape());
    };
    const auto elsewhere = [](const Tensor& tensor) {
      return Tensor(tensor.data(), tensor.type(), tensor.shape(), nullptr, Device::Cuda(1));
    };
    if (one.has_input) {
      refuse(one.call(absent(input), output),
             absl::StrCat("the input, ", input.ToString(), ", has no memory"));
      refuse(one.call(elsewhere(input), output),
             absl::StrCat("the input is ", elsewhere(input).ToString(), " and should be on host"));
    }
    if (one.has_output) {
      refuse(one.call(input, absent(output)),
             absl::StrCat("the output, ", output.ToString(), ", has no memory"));
      refuse(
          one.call(input, elsewhere(output)),
          absl::StrCat("the output is ", elsewhere(output).ToString(), " and should be on host"));
    }
  }
  // No refused call has waited for the other rank.
  ExpectUsable(world);
}

TEST(OwnMistakesTest, AFullHeapIsResourceExhausted) {
  CollectiveWorld world(Medium::kHeap, 1);
  HostLocation full([](DataType, const Shape&) -> absl::StatusOr<Tensor> {
    return absl::ResourceExhaustedError("the heap is full");
  });
  TensorCollectives collectives(&world.communicator(0), &full);
  const Tensor columns = *F32({4, 4}).Narrow(1, 0, 2);
  EXPECT_EQ(AllReduce(collectives, columns, columns, kSum, Soon()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(AllReduce(collectives, F32({4}), F32({4}), kSum, Soon()).ok());
}

TEST(MissingRankTest, IsNamed) {
  CollectiveWorld world(Medium::kHeap, 3);
  const std::vector<absl::Status> statuses = world.Run([](TensorCollectives& collectives) {
    if (collectives.rank() == 1) return absl::OkStatus();  // makes no call
    const Instant deadline =
        collectives.rank() == 0 ? Clock::Steady().Now() + absl::Milliseconds(50) : Soon();
    return AllGatherV(collectives, F32({2, collectives.rank()}), F32({2, 3}), 1, {0, 1, 2},
                      deadline);
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 did not come"));
  EXPECT_EQ(statuses[2].code(), absl::StatusCode::kAborted) << statuses[2];
}

// The quote covers the difference, and is no longer than a status should be.
TEST(ExplainMismatchTest, QuotesWhatDiffersOfLongCalls) {
  CollectiveWorld world(Medium::kProcess, 2);
  const std::vector<absl::Status> statuses = world.Run([&](TensorCollectives& collectives) {
    std::string own(6000, 'x');
    own.replace(3000, 5, collectives.rank() == 0 ? "first" : "other");
    return ExplainMismatch(world.communicator(collectives.rank()), own, MismatchError("a", 1, "b"),
                           Soon());
  });
  EXPECT_EQ(statuses[0], statuses[1]);
  EXPECT_TRUE(IsMismatch(statuses[0]));
  const std::string text(statuses[0].message());
  EXPECT_THAT(text, HasSubstr("xxxfirstxxx"));
  EXPECT_THAT(text, HasSubstr("xxxotherxxx"));
  EXPECT_LT(text.size(), 2000u);
}

}  // namespace
}  // namespace cohort::worker
