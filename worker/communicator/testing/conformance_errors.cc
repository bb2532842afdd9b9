// Errors, and which ranks get them.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

absl::Status SumOf(Communicator& group, int64_t count, DataType type, Instant deadline,
                   uint32_t tag = 0) {
  Bytes bytes(static_cast<size_t>(count * SizeOf(type)));
  FlatCall call;
  call.collective = Collective::kAllReduce;
  call.type = type;
  call.count = count;
  call.tag = tag;
  return group.Run(call, bytes.data(), bytes.data(), deadline);
}

}  // namespace

// All ranks get the same error, which names two that differ; the group stays usable.
TEST_P(ConformanceTest, RanksThatCallDifferentThingsGetTheSameError) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  const auto expect_refused = [&](const std::function<absl::Status(Communicator&)>& body,
                                  const std::string& first, const std::string& second) {
    const std::vector<absl::Status> statuses = world.Run(body);
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_TRUE(IsMismatch(status)) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
      EXPECT_THAT(std::string(status.message()), HasSubstr(first));
      EXPECT_THAT(std::string(status.message()), HasSubstr(second));
    }
    ExpectOk(
        world.Run([](Communicator& group) { return SumOf(group, 300000, DataType::kF32, Soon()); }),
        "all_reduce behind it");
  };
  expect_refused(
      [](Communicator& group) {
        return SumOf(group, group.rank() == 2 ? 11 : 10, DataType::kF32, Soon());
      },
      "rank 0 all_reduce of 10 f32 by sum", "rank 2 all_reduce of 11 f32 by sum");
  expect_refused(
      [](Communicator& group) {
        return SumOf(group, 10, group.rank() == 1 ? DataType::kF16 : DataType::kBF16, Soon());
      },
      "of 10 bf16", "rank 1 all_reduce of 10 f16");
  expect_refused(
      [](Communicator& group) {
        return group.rank() == 1 ? group.Barrier(Soon()) : SumOf(group, 10, DataType::kI8, Soon());
      },
      "all_reduce of 10 i8", "rank 1 barrier");
  expect_refused(
      [](Communicator& group) {
        Bytes bytes(16);
        return group.Broadcast(bytes.data(), bytes.data(), 16, DataType::kU8, group.rank() / 2,
                               Soon());
      },
      "root 0", "rank 2 broadcast of 16 u8, root 1");
  expect_refused(
      [](Communicator& group) {
        float number = 1;
        const Reduction reduction = {ReduceOp::kPreMulSum, group.rank() == 0 ? 0.5 : 0.25};
        return group.AllReduce(&number, &number, 1, DataType::kF32, reduction, Soon());
      },
      "rank 0 all_reduce", "rank 1 all_reduce");
}

// The tag, which stands for the layers above flat memory, is compared too.
TEST_P(ConformanceTest, RanksWithDifferentTagsGetTheSameError) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  for (const int64_t count : {int64_t{0}, int64_t{10}, int64_t{300000}}) {
    const std::vector<absl::Status> statuses = world.Run([&](Communicator& group) {
      const uint32_t tag = group.rank() == 1 ? 0xFEDCBA98 : 0xFEDCBA99;
      return SumOf(group, count, DataType::kF32, Soon(), tag);
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_TRUE(IsMismatch(status)) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
      EXPECT_THAT(std::string(status.message()), HasSubstr("of another tag"));
    }
    ExpectOk(world.Run([&](Communicator& group) {
      return SumOf(group, count, DataType::kF32, Soon(), /*tag=*/7);
    }),
             "all_reduce behind it");
  }
}

// Messages of one kind of call do not pass for those of another.
TEST_P(ConformanceTest, MessagesWithDifferentTagsAreRefused) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  World world = MakeWorld(2);
  for (const int64_t count : {int64_t{3}, int64_t{300000}}) {
    const std::vector<absl::Status> statuses = world.Run([&](Communicator& group) {
      Bytes bytes(static_cast<size_t>(count));
      Transfer transfer = group.rank() == 0
                              ? Transfer::Send(1, bytes.data(), count, DataType::kU8)
                              : Transfer::Receive(0, bytes.data(), count, DataType::kU8);
      transfer.tag = static_cast<uint32_t>(group.rank());
      return group.Exchange({transfer}, Soon());
    });
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("in a call of another kind"));
    EXPECT_FALSE(IsMismatch(statuses[1])) << statuses[1];
  }
}

TEST_P(ConformanceTest, ADeadlineNamesMissingRanks) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  ExpectOk(world.Run([](Communicator& group) { return group.Barrier(Soon()); }), "barrier");
  const std::vector<absl::Status> statuses = world.Run([](Communicator& group) {
    if (group.rank() == 1) return absl::OkStatus();  // is elsewhere
    const absl::Duration timeout = absl::Milliseconds(group.rank() == 0 ? 50 : 20000);
    return SumOf(group, 10, DataType::kF32, Clock::Steady().Now() + timeout);
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 did not come"));
  EXPECT_EQ(statuses[2].code(), absl::StatusCode::kAborted) << statuses[2];
  EXPECT_THAT(std::string(statuses[2].message()), HasSubstr("rank 0 gave up"));
  EXPECT_THAT(std::string(statuses[2].message()), HasSubstr("rank 1 did not come"));
  // A rank that comes late gets the error immediately.
  const absl::Status late = SumOf(world.rank(1), 10, DataType::kF32, Soon());
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted) << late;
}

TEST_P(ConformanceTest, AbortEndsWhatIsInFlightAndAllLater) {
  ForEachWorld([](World& world) {
    const int last = world.size() - 1;
    const std::vector<absl::Status> statuses = world.Run([&](Communicator& group) {
      if (group.rank() == last) {
        group.Abort("rank 7 is tired");
        group.Abort("a later cause");
      }
      return group.Barrier(Soon());
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_EQ(status.message(), "rank 7 is tired");
    }
    for (const absl::Status& status :
         world.Run([](Communicator& group) { return SumOf(group, 5, DataType::kF64, Soon()); })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    }
  });
}

TEST_P(ConformanceTest, AnOutputRightBesideTheInputDoesNotOverlap) {
  World world = MakeWorld(GetParam().sizes.front());
  ExpectOk(world.Run([](Communicator& group) {
    Bytes bytes(32);
    char* const first = bytes.data();
    char* const second = first + 16;
    absl::Status status =
        group.AllReduce(first, second, 4, DataType::kF32, {ReduceOp::kSum}, Soon());
    status.Update(group.AllReduce(second, first, 4, DataType::kF32, {ReduceOp::kSum}, Soon()));
    return status;
  }),
           "beside each other");
}

TEST_P(ConformanceTest, ArgumentsWithoutSenseAreRefusedAtOnce) {
  World world = MakeWorld(GetParam().sizes.front());
  Communicator& group = world.rank(0);
  Bytes bytes(4096);
  const auto refuse = [&](const absl::Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  char* const data = bytes.data();
  const Reduction sum = {ReduceOp::kSum};
  refuse(group.AllReduce(data, data, -1, DataType::kF32, sum, Soon()), "a count of -1");
  refuse(group.AllReduce(data, data, int64_t{1} << 62, DataType::kF32, sum, Soon()), "more than");
  refuse(group.AllReduce(nullptr, data, 4, DataType::kF32, sum, Soon()), "the input is null");
  refuse(group.AllReduce(data, nullptr, 4, DataType::kF32, sum, Soon()), "the output is null");
  refuse(group.AllReduce(data, data + 4, 4, DataType::kF32, sum, Soon()), "overlap");
  refuse(group.AllReduce(data, data, 4, DataType::kC64, sum, Soon()), "c64 cannot be reduced");
  refuse(group.Broadcast(data, data, 4, DataType::kF32, group.size(), Soon()), "root");
  refuse(group.Gather(data, data, 4, DataType::kF32, -1, Soon()), "root -1");
  refuse(group.AllToAll(data, data, 4, DataType::kF32, Soon()), "overlap");
  // None of these calls took a sequence number: the communicator stays usable.
  ExpectOk(world.Run([](Communicator& rank) { return rank.Barrier(Soon()); }), "barrier");
}

}  // namespace cohort::worker
