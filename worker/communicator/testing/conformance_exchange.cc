// Messages between two ranks.
#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

int Next(const Communicator& group) { return (group.rank() + 1) % group.size(); }
int Previous(const Communicator& group) { return (group.rank() + group.size() - 1) % group.size(); }

absl::Status SendOne(Communicator& group, int peer, const Bytes& bytes, DataType type) {
  const Transfer send =
      Transfer::Send(peer, bytes.data(), static_cast<int64_t>(bytes.size()) / SizeOf(type), type);
  return group.Exchange(absl::MakeConstSpan(&send, 1), ConformanceTest::Soon());
}

absl::Status ReceiveOne(Communicator& group, int peer, Bytes& bytes, DataType type) {
  const Transfer receive = Transfer::Receive(
      peer, bytes.data(), static_cast<int64_t>(bytes.size()) / SizeOf(type), type);
  return group.Exchange(absl::MakeConstSpan(&receive, 1), ConformanceTest::Soon());
}

}  // namespace

TEST_P(ConformanceTest, ExchangeAroundARingOfEveryTypeAndSize) {
  ForEachWorld([](World& world) {
    if (world.size() == 1) return;
    std::vector<std::pair<DataType, int64_t>> cases;
    for (const DataType type : kDataTypes) cases.emplace_back(type, 37);
    for (const int64_t count : Counts(DataType::kU16)) cases.emplace_back(DataType::kU16, count);
    for (const auto& [type, count] : cases) {
      const std::vector<Bytes> sent = Inputs(world.size(), count, type);
      std::vector<Bytes> received(sent.size(), Bytes(sent[0].size()));
      ExpectOk(world.Run([&, type = type, count = count](Communicator& group) {
        const auto rank = static_cast<size_t>(group.rank());
        Transfer transfers[] = {
            Transfer::Send(Next(group), sent[rank].data(), count, type),
            Transfer::Receive(Previous(group), received[rank].data(), count, type)};
        // In either order.
        if (rank % 2 == 1) std::swap(transfers[0], transfers[1]);
        return group.Exchange(transfers, Soon());
      }),
               absl::StrCat(count, " ", NameOf(type)));
      for (size_t rank = 0; rank < sent.size(); ++rank) {
        ASSERT_TRUE(received[rank] == sent[(rank + sent.size() - 1) % sent.size()])
            << count << " " << NameOf(type) << ", rank " << rank;
      }
    }
  });
}

TEST_P(ConformanceTest, ExchangeWithEveryRankAtOnce) {
  ForEachWorld([](World& world) {
    constexpr int64_t kCount = 30000;
    const size_t size = static_cast<size_t>(world.size());
    const std::vector<Bytes> sent = Inputs(world.size(), kCount, DataType::kF32);
    std::vector<std::vector<Bytes>> received(size, std::vector<Bytes>(size, Bytes(kCount * 4)));
    ExpectOk(world.Run([&](Communicator& group) {
      const auto rank = static_cast<size_t>(group.rank());
      std::vector<Transfer> transfers;
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        transfers.push_back(Transfer::Receive(
            peer, received[rank][static_cast<size_t>(peer)].data(), kCount, DataType::kF32));
        transfers.push_back(Transfer::Send(peer, sent[rank].data(), kCount, DataType::kF32));
      }
      return group.Exchange(transfers, Soon());
    }),
             "all with all");
    for (size_t to = 0; to < size; ++to) {
      for (size_t from = 0; from < size; ++from) {
        if (from == to) continue;
        ASSERT_TRUE(received[to][from] == sent[from]) << from << " to " << to;
      }
    }
  });
}

// Small messages, for which a sender does not wait, and large ones, between the same two ranks.
TEST_P(ConformanceTest, MessagesArriveInTheOrderSent) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  constexpr int kMessages = 300;
  const auto size_of = [](int message) {
    return message % 7 == 0 ? 700000 : message % 5 == 0 ? 6000 : message % 3 * 10;
  };
  ExpectOk(world.Run([&](Communicator& group) -> absl::Status {
    for (int message = 0; message < kMessages; ++message) {
      Bytes bytes(static_cast<size_t>(size_of(message)), static_cast<char>(message));
      if (group.rank() == 0) {
        for (const int peer : {1, 2}) {
          absl::Status status = SendOne(group, peer, bytes, DataType::kI8);
          if (!status.ok()) return status;
        }
        continue;
      }
      const Bytes expected = bytes;
      std::fill(bytes.begin(), bytes.end(), 0);
      absl::Status status = ReceiveOne(group, 0, bytes, DataType::kI8);
      if (!status.ok()) return status;
      if (bytes != expected) return absl::InternalError(absl::StrCat("message ", message));
    }
    return group.Barrier(Soon());
  }),
           "a stream of messages");
}

TEST_P(ConformanceTest, AMismatchedReceiveIsReportedAndTheGroupGoesOn) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  World world = MakeWorld(2);
  for (const size_t count : {5, 300000}) {
    const std::vector<absl::Status> statuses = world.Run([&](Communicator& group) {
      Bytes bytes(count * 4);
      if (group.rank() == 0) return SendOne(group, 1, bytes, DataType::kF32);
      return ReceiveOne(group, 0, bytes, DataType::kI16);
    });
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()),
                HasSubstr(absl::StrCat("receive of ", count * 2, " i16 from rank 0")));
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr(absl::StrCat(count, " f32")));
    if (count > 10000) {
      EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInvalidArgument) << statuses[0];
    }
    ExpectOk(world.Run([](Communicator& group) {
      Bytes bytes(4000, static_cast<char>(9));
      if (group.rank() == 0) return SendOne(group, 1, bytes, DataType::kF32);
      std::fill(bytes.begin(), bytes.end(), 0);
      const absl::Status status = ReceiveOne(group, 0, bytes, DataType::kF32);
      return bytes == Bytes(4000, static_cast<char>(9)) ? status : absl::InternalError("lost");
    }),
             "the message behind it");
  }
}

// More bytes of them than the two ranks have room for.
TEST_P(ConformanceTest, MismatchedMessagesLeaveTheirRoomToOthers) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  World world = MakeWorld(2);
  constexpr int kMessages = 500;
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    Bytes bytes(4000, static_cast<char>(group.rank()));
    for (int message = 0; message < kMessages; ++message) {
      const absl::Status status = group.rank() == 0 ? SendOne(group, 1, bytes, DataType::kF32)
                                                    : ReceiveOne(group, 0, bytes, DataType::kI16);
      const bool may_pass = group.rank() == 0 && status.ok();
      if (!may_pass && !absl::IsInvalidArgument(status)) {
        return absl::InternalError(absl::StrCat("message ", message, ": ", status.ToString()));
      }
    }
    if (group.rank() == 0) return SendOne(group, 1, bytes, DataType::kF32);
    const absl::Status status = ReceiveOne(group, 0, bytes, DataType::kF32);
    return bytes == Bytes(4000, 0) ? status : absl::InternalError("lost");
  }),
           "the message behind them");
}

TEST_P(ConformanceTest, MoreMessagesAtOnceThanThereIsRoomFor) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  constexpr size_t kMessages = 200;
  World world = MakeWorld(2);
  const std::vector<Bytes> sent = Inputs(2, static_cast<int64_t>(kMessages), DataType::kI64);
  // One way, and both ways.
  for (const bool both : {false, true}) {
    std::vector<Bytes> received(2, Bytes(sent[0].size()));
    ExpectOk(world.Run([&](Communicator& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const int other = 1 - group.rank();
      std::vector<Transfer> transfers;
      for (size_t i = 0; i < kMessages; ++i) {
        if (both || rank == 0) {
          transfers.push_back(Transfer::Send(other, &sent[rank][i * 8], 1, DataType::kI64));
        }
        if (both || rank == 1) {
          transfers.push_back(Transfer::Receive(other, &received[rank][i * 8], 1, DataType::kI64));
        }
      }
      return group.Exchange(transfers, Soon());
    }),
             "many messages");
    EXPECT_TRUE(received[1] == sent[0]);
    EXPECT_EQ(received[0] == sent[1], both);
  }
}

TEST_P(ConformanceTest, AMessageThatDoesNotComeNamesItsSender) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  const std::vector<absl::Status> statuses = world.Run([](Communicator& group) {
    if (group.rank() != 0) return absl::OkStatus();
    Bytes bytes(40);
    const Transfer receive = Transfer::Receive(2, bytes.data(), 10, DataType::kF32);
    return group.Exchange(absl::MakeConstSpan(&receive, 1),
                          Clock::Steady().Now() + absl::Milliseconds(50));
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("receive of 10 f32 from rank 2"));
}

TEST_P(ConformanceTest, AMessageThatHasComeIsSeen) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    Bytes bytes(12);
    if (group.rank() == 0) {
      const absl::StatusOr<bool> nothing = group.HasMessage(1);
      if (!nothing.ok() || *nothing) {
        return absl::InternalError("HasMessage is true, but no rank sent one");
      }
    }
    absl::Status status = group.Barrier(Soon());
    if (!status.ok() || group.rank() == 2) return status;
    if (group.rank() == 1) return SendOne(group, 0, bytes, DataType::kF32);
    const Instant deadline = Soon();
    while (true) {
      const absl::StatusOr<bool> come = group.HasMessage(1);
      if (!come.ok()) return come.status();
      if (*come) break;
      if (Clock::Steady().Now() > deadline) return absl::InternalError("it is not seen");
    }
    const absl::StatusOr<bool> other = group.HasMessage(2);
    if (!other.ok() || *other) return absl::InternalError("a message of another rank");
    status = ReceiveOne(group, 1, bytes, DataType::kF32);
    if (!status.ok()) return status;
    const absl::StatusOr<bool> behind = group.HasMessage(1);
    return behind.ok() && !*behind ? absl::OkStatus() : absl::InternalError("it stays");
  }),
           "a look");
  // And so is the end.
  world.rank(1).Abort("rank 1 is tired");
  const Instant deadline = Soon();
  while (world.rank(0).HasMessage(1).ok()) ASSERT_LT(Clock::Steady().Now(), deadline);
  EXPECT_EQ(world.rank(0).HasMessage(1).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(world.rank(0).HasMessage(1).status().message(), "rank 1 is tired");
}

TEST_P(ConformanceTest, WhicheverMessageComesFirstIsAwaited) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  World world = MakeWorld(3);
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    Bytes bytes(12);
    const int others[] = {1, 2};
    if (group.rank() == 0) {
      // To wait in vain ends nothing.
      const absl::StatusOr<MessageInfo> early = group.AwaitMessage(others, Clock::Steady().Now());
      if (!absl::IsDeadlineExceeded(early.status())) return absl::InternalError("no rank sent");
    }
    COHORT_RETURN_IF_ERROR(group.Barrier(Soon()));
    if (group.rank() == 1) {
      // It sends when the other one's has been taken.
      COHORT_RETURN_IF_ERROR(ReceiveOne(group, 0, bytes, DataType::kF32));
      return SendOne(group, 0, bytes, DataType::kF32);
    }
    if (group.rank() == 2) return SendOne(group, 0, bytes, DataType::kF32);
    COHORT_ASSIGN_OR_RETURN(const MessageInfo first, group.AwaitMessage(others, Soon()));
    if (first.peer != 2) return absl::InternalError(absl::StrCat("rank ", first.peer, " is first"));
    if (first.type != DataType::kF32 || first.count != 3) {
      return absl::InternalError(absl::StrCat(first.count, " ", NameOf(first.type)));
    }
    COHORT_RETURN_IF_ERROR(ReceiveOne(group, 2, bytes, DataType::kF32));
    COHORT_RETURN_IF_ERROR(SendOne(group, 1, bytes, DataType::kF32));
    COHORT_ASSIGN_OR_RETURN(const MessageInfo second, group.AwaitMessage(others, Soon()));
    if (second.peer != 1)
      return absl::InternalError(absl::StrCat("rank ", second.peer, " is next"));
    return ReceiveOne(group, 1, bytes, DataType::kF32);
  }),
           "a wait for the first of two messages");
}

// The time may run out while the rank looks, spins or sleeps.
TEST_P(ConformanceTest, ShortWaitsForMessagesEndNothing) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  World world = MakeWorld(2);
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    const int other = 1 - group.rank();
    for (int i = 0; i < 300; ++i) {
      const absl::StatusOr<MessageInfo> early = group.AwaitMessage(
          absl::MakeConstSpan(&other, 1), Clock::Steady().Now() + absl::Microseconds(i));
      if (!absl::IsDeadlineExceeded(early.status())) return early.status();
    }
    return group.Barrier(Soon());
  }),
           "after waits without a message");
}

TEST_P(ConformanceTest, AbortEndsAnAwaitedMessage) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  World world = MakeWorld(2);
  const std::vector<absl::Status> statuses = world.Run([](Communicator& group) {
    if (group.rank() == 1) {
      group.Abort("rank 1 is tired");
      return absl::OkStatus();
    }
    const int other = 1;
    return group.AwaitMessage(absl::MakeConstSpan(&other, 1), Soon()).status();
  });
  EXPECT_EQ(statuses[0], AbortError("rank 1 is tired"));
}

TEST_P(ConformanceTest, AbortEndsAnExchange) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  World world = MakeWorld(2);
  const std::vector<absl::Status> statuses = world.Run([](Communicator& group) {
    if (group.rank() == 1) {
      group.Abort("rank 1 is tired");
      return absl::OkStatus();
    }
    Bytes bytes(40);
    return ReceiveOne(group, 1, bytes, DataType::kF32);
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
  EXPECT_EQ(statuses[0].message(), "rank 1 is tired");
}

TEST_P(ConformanceTest, TransfersWithoutSenseAreRefusedAtOnce) {
  World world = MakeWorld(GetParam().sizes.back());
  Communicator& group = world.rank(0);
  Bytes bytes(64);
  const auto refuse = [&](const Transfer& transfer, const std::string& why) {
    const absl::Status status = group.Exchange(absl::MakeConstSpan(&transfer, 1), Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  refuse(Transfer::Send(0, bytes.data(), 1, DataType::kF32), "this rank itself");
  refuse(Transfer::Receive(-1, bytes.data(), 1, DataType::kF32), "ranks are 0..");
  refuse(Transfer::Send(group.size(), bytes.data(), 1, DataType::kF32), "ranks are 0..");
  if (group.size() == 1) return;
  refuse(Transfer::Send(1, bytes.data(), -1, DataType::kF32), "a negative count");
  refuse(Transfer::Receive(1, nullptr, 1, DataType::kF32), "null");
  refuse(Transfer::Receive(1, bytes.data(), int64_t{1} << 62, DataType::kF32), "more than");
}

TEST_P(ConformanceTest, AnExchangeOfNothingIsDoneAtOnce) {
  World world = MakeWorld(GetParam().sizes.front());
  EXPECT_TRUE(world.rank(0).Exchange({}, Soon()).ok());
}

}  // namespace cohort::worker
