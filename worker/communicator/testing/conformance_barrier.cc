// The barrier: which ranks it waits for, its order among the other collectives, and the errors when
// a rank does not come or calls another collective.
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr Reduction kSum = {ReduceOp::kSum};

// Comes to a barrier, and fails where a rank had not come when it returned. `round` counts from 1.
absl::Status Pass(Communicator& group, int round, std::atomic<int>* arrived) {
  arrived->fetch_add(1);
  const absl::Status status = group.Barrier(ConformanceTest::Soon());
  return arrived->load() >= round * group.size() ? status
                                                 : absl::InternalError("released too early");
}

}  // namespace

TEST_P(ConformanceTest, BarrierWaitsForAll) {
  ForEachWorld([](World& world) {
    std::atomic<int> arrived{0};
    for (int round = 1; round <= 200; ++round) {
      ExpectOk(world.Run([&](Communicator& group) { return Pass(group, round, &arrived); }),
               absl::StrCat("barrier ", round));
    }
  });
}

// The root of small broadcasts may be many calls ahead of the others. A barrier ends that.
TEST_P(ConformanceTest, BarrierWaitsForRanksThatAreBehindInBroadcasts) {
  ForEachWorld([](World& world) {
    std::atomic<int> arrived{0};
    for (int round = 1; round <= 20; ++round) {
      ExpectOk(world.Run([&](Communicator& group) -> absl::Status {
        for (int i = 0; i < 70; ++i) {
          Bytes number(1, static_cast<char>(group.rank() == 0 ? i : 0));
          const absl::Status status =
              group.EagerBroadcast(number.data(), number.data(), 1, DataType::kU8, 0, Soon());
          if (!status.ok()) return status;
          if (number[0] != i) return absl::DataLossError(absl::StrCat("broadcast ", i));
        }
        return Pass(group, round, &arrived);
      }),
               absl::StrCat("round ", round));
    }
  });
}

TEST_P(ConformanceTest, BarrierIsInOrderWithOtherCollectives) {
  constexpr uint32_t kSeed = 20261122;
  ForEachWorld([](World& world) {
    std::atomic<int> arrived{0};
    ExpectOk(world.Run([&](Communicator& group) -> absl::Status {
      std::mt19937 random(kSeed);  // the same on all ranks
      int barriers = 0;
      for (int call = 0; call < 300; ++call) {
        const int64_t count = random() % 8 == 0 ? 100000 : static_cast<int64_t>(random() % 40);
        const Bytes input = Input(group.rank(), count, DataType::kI32);
        Bytes output(input.size());
        absl::Status status;
        switch (random() % 4) {
          case 0:
          case 1:
            status = Pass(group, ++barriers, &arrived);
            output = input;
            break;
          case 2:
            status =
                group.AllReduce(input.data(), output.data(), count, DataType::kI32, kSum, Soon());
            if (output != Reduced(Inputs(group.size(), count, DataType::kI32), 0, count,
                                  DataType::kI32, kSum)) {
              status.Update(absl::DataLossError("all_reduce"));
            }
            break;
          default: {
            const int root = static_cast<int>(random() % static_cast<unsigned>(group.size()));
            status = group.EagerBroadcast(input.data(), output.data(), count, DataType::kI32, root,
                                          Soon());
            if (output != Input(root, count, DataType::kI32)) {
              status.Update(absl::DataLossError("broadcast"));
            }
          }
        }
        if (!status.ok()) {
          return absl::Status(status.code(), absl::StrCat("call ", call, " of seed ", kSeed, ": ",
                                                          status.message()));
        }
      }
      return absl::OkStatus();
    }),
             "calls in order");
  });
}

TEST_P(ConformanceTest, ABarrierMismatchesEveryOtherCollective) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  for (const int64_t count : {int64_t{9}, int64_t{300000}}) {
    Bytes memory[3];
    for (Bytes& bytes : memory) bytes.resize(static_cast<size_t>(count * 4 * 4));
    const auto input = [&](Communicator& group) { return memory[group.rank()].data(); };
    const auto output = [&](Communicator& group) { return input(group) + count * 4; };
    const DataType type = DataType::kF32;
    const std::vector<std::pair<std::string, std::function<absl::Status(Communicator&)>>>
        collectives = {
            {"all_reduce",
             [&](Communicator& group) {
               return group.AllReduce(input(group), output(group), count, type, kSum, Soon());
             }},
            {"reduce",
             [&](Communicator& group) {
               return group.Reduce(input(group), output(group), count, type, kSum, 2, Soon());
             }},
            {"broadcast",
             [&](Communicator& group) {
               return group.Broadcast(input(group), output(group), count, type, 2, Soon());
             }},
            {"all_gather",
             [&](Communicator& group) {
               return group.AllGather(input(group), output(group), count, type, Soon());
             }},
            {"reduce_scatter",
             [&](Communicator& group) {
               return group.ReduceScatter(input(group), input(group) + 3 * count * 4, count, type,
                                          kSum, Soon());
             }},
            {"all_to_all",
             [&](Communicator& group) {
               const int64_t part = count / 3;
               return group.AllToAll(input(group), output(group), part, type, Soon());
             }},
            {"gather",
             [&](Communicator& group) {
               return group.Gather(input(group), output(group), count, type, 2, Soon());
             }},
            {"scatter", [&](Communicator& group) {
               return group.Scatter(input(group), input(group) + 3 * count * 4, count, type, 2,
                                    Soon());
             }}};
    for (const auto& [name, collective] : collectives) {
      SCOPED_TRACE(absl::StrCat(name, " of ", count));
      const std::vector<absl::Status> statuses =
          world.Run([&, call = collective](Communicator& group) {
            return group.rank() == 1 ? group.Barrier(Soon()) : call(group);
          });
      for (const absl::Status& status : statuses) {
        EXPECT_TRUE(IsMismatch(status)) << status;
        EXPECT_EQ(status.message(), statuses[0].message());
        // For large data a backend may name the call by which it agrees first; groups name the
        // collective.
        const bool large = count > 1000;
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(absl::StrCat("rank 0 ", large ? "" : name)));
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 barrier"));
      }
      ExpectOk(world.Run([](Communicator& group) { return group.Barrier(Soon()); }),
               "barrier behind it");
    }
  }
}

TEST_P(ConformanceTest, ABarrierNamesMissingRanks) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  ExpectOk(world.Run([](Communicator& group) { return group.Barrier(Soon()); }), "barrier");
  const std::vector<absl::Status> statuses = world.Run([](Communicator& group) {
    if (group.rank() == 1) return absl::OkStatus();  // is elsewhere
    const absl::Duration timeout = absl::Milliseconds(group.rank() == 0 ? 50 : 20000);
    return group.Barrier(Clock::Steady().Now() + timeout);
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 did not come"));
  EXPECT_EQ(statuses[2].code(), absl::StatusCode::kAborted) << statuses[2];
  EXPECT_THAT(std::string(statuses[2].message()), HasSubstr("rank 0 gave up"));
  EXPECT_THAT(std::string(statuses[2].message()), HasSubstr("rank 1 did not come"));
  const absl::Status late = world.rank(1).Barrier(Soon());
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted) << late;
}

}  // namespace cohort::worker
