// A rank that leaves in order ends only the calls that need it.
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLarge = 3000000;
constexpr char kCause[] = "rank 2 left the group";

absl::Status Send(Communicator& group, int peer, int64_t count) {
  Bytes bytes(static_cast<size_t>(count), static_cast<char>(group.rank() + 1));
  return group.Exchange({Transfer::Send(peer, bytes.data(), count, DataType::kU8)},
                        ConformanceTest::Soon());
}

absl::Status Receive(Communicator& group, int peer, int64_t count) {
  Bytes bytes(static_cast<size_t>(count));
  COHORT_RETURN_IF_ERROR(group.Exchange(
      {Transfer::Receive(peer, bytes.data(), count, DataType::kU8)}, ConformanceTest::Soon()));
  const bool same = bytes == Bytes(bytes.size(), static_cast<char>(peer + 1));
  return same ? absl::OkStatus() : absl::DataLossError(absl::StrCat("not the bytes of ", peer));
}

absl::Status Sum(Communicator& group, int64_t count) {
  Bytes bytes(static_cast<size_t>(count));
  return group.AllReduce(bytes.data(), bytes.data(), count, DataType::kU8, {},
                         ConformanceTest::Soon());
}

void ExpectLeft(const absl::Status& status, const std::string& what,
                const std::string& cause = kCause) {
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << what << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(cause)) << what;
}

}  // namespace

TEST_P(ConformanceTest, MessagesOfOtherRanksGoOnWhenARankHasLeft) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  if (!GetParam().outlives_leavers) GTEST_SKIP() << "the backend ends with its first leaver";
  World world = MakeWorld(3);
  ExpectOk(world.Run([](Communicator& group) { return Sum(group, 10); }), "all_reduce");
  // The last words of rank 2 arrive.
  EXPECT_EQ(Send(world.rank(2), 0, 5), absl::OkStatus());
  world.Leave(2, kCause);
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    if (group.rank() == 0) COHORT_RETURN_IF_ERROR(Receive(group, 2, 5));
    for (const int64_t count : {int64_t{5}, kLarge}) {
      const bool first = group.rank() == 0;
      COHORT_RETURN_IF_ERROR(first ? Send(group, 1, count) : Receive(group, 0, count));
      COHORT_RETURN_IF_ERROR(first ? Receive(group, 1, count) : Send(group, 0, count));
    }
    return absl::OkStatus();
  }),
           "messages");
}

// Whom a rank hears of comes from a coordinator or a daemon that could be wrong.
TEST_P(ConformanceTest, ALeaverThatIsNoRankChangesNothing) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  if (!GetParam().outlives_leavers) GTEST_SKIP() << "the backend ends with its first leaver";
  World world = MakeWorld(3);
  for (const int rank : {-1, 3, 1 << 30}) world.rank(0).NoteLeft(rank, kCause);
  ExpectOk(world.Run([](Communicator& group) { return Sum(group, 10); }), "all_reduce");
}

TEST_P(ConformanceTest, CallsThatNeedALeaverEndWithItsName) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  if (!GetParam().outlives_leavers) GTEST_SKIP() << "the backend ends with its first leaver";
  World world = MakeWorld(3);
  world.Leave(2, kCause);
  for (int round = 0; round < 5; ++round) {
    for (const int64_t count : {int64_t{5}, kLarge}) {
      const std::string what = absl::StrCat(count, " bytes, round ", round);
      const std::vector<absl::Status> sums =
          world.Run([&](Communicator& group) { return Sum(group, count); });
      const std::vector<absl::Status> broadcasts = world.Run([&](Communicator& group) {
        Bytes bytes(static_cast<size_t>(count));
        return group.EagerBroadcast(bytes.data(), bytes.data(), count, DataType::kU8, 1, Soon());
      });
      for (size_t rank = 0; rank < 2; ++rank) {
        ExpectLeft(sums[rank], absl::StrCat("all_reduce of ", what));
        ExpectLeft(broadcasts[rank], absl::StrCat("broadcast of ", what));
      }
      ExpectLeft(Send(world.rank(0), 2, count), absl::StrCat("send of ", what));
      ExpectLeft(Receive(world.rank(1), 2, count), absl::StrCat("receive of ", what));
    }
  }
  // A transfer with the leaver does not hold up those beside it.
  const std::vector<absl::Status> statuses = world.Run([&](Communicator& group) {
    if (group.rank() == 1) return Receive(group, 0, kLarge);
    Bytes bytes(static_cast<size_t>(kLarge), 1);
    Bytes room(5);
    return group.Exchange({Transfer::Receive(2, room.data(), 5, DataType::kU8),
                           Transfer::Send(1, bytes.data(), kLarge, DataType::kU8),
                           Transfer::Send(2, bytes.data(), kLarge, DataType::kU8)},
                          Soon());
  });
  ExpectLeft(statuses[0], "an exchange with both");
  EXPECT_EQ(statuses[1], absl::OkStatus());
}

TEST_P(ConformanceTest, EachLeaverIsNamedInCallsThatNeedIt) {
  if (!HasSize(3)) GTEST_SKIP() << "the backend has no group of three";
  if (!GetParam().outlives_leavers) GTEST_SKIP() << "the backend ends with its first leaver";
  for (const int first : {1, 2}) {
    World world = MakeWorld(3);
    for (const int rank : {first, 3 - first}) {
      world.Leave(rank, absl::StrCat("rank ", rank, " left the group"));
    }
    for (const int rank : {1, 2}) {
      const std::string cause = absl::StrCat("rank ", rank, " left the group");
      ExpectLeft(Receive(world.rank(0), rank, 5), "receive", cause);
      ExpectLeft(Send(world.rank(0), rank, kLarge), "send", cause);
    }
  }
}

// The ranks wait already when the rank leaves.
TEST_P(ConformanceTest, ALeaverWakesTheCallsThatNeedIt) {
  if (!HasSize(4)) GTEST_SKIP() << "the backend has no group of four";
  if (!GetParam().outlives_leavers) GTEST_SKIP() << "the backend ends with its first leaver";
  World world = MakeWorld(4);
  std::vector<absl::Status> statuses(4);
  std::vector<std::thread> threads;
  // Rank 0 waits in a collective, rank 1 for the leaver's message, and rank 3 for that of two
  // ranks.
  threads.emplace_back([&] { statuses[0] = Sum(world.rank(0), 10); });
  threads.emplace_back([&] { statuses[1] = Receive(world.rank(1), 2, 5); });
  threads.emplace_back([&] {
    const int peers[] = {1, 2};
    statuses[3] = world.rank(3).AwaitMessage(peers, Soon()).status();
  });
  world.Leave(2, kCause);
  for (std::thread& thread : threads) thread.join();
  ExpectLeft(statuses[0], "all_reduce");
  ExpectLeft(statuses[1], "receive");
  ExpectLeft(statuses[3], "await of two");
  // A message that is there comes first.
  EXPECT_EQ(Send(world.rank(1), 3, 5), absl::OkStatus());
  const int both[] = {2, 1};
  EXPECT_EQ(world.rank(3).AwaitMessage(both, Soon()).status(), absl::OkStatus());
  EXPECT_EQ(Receive(world.rank(3), 1, 5), absl::OkStatus());
  const int leaver = 2;
  ExpectLeft(world.rank(3).AwaitMessage(absl::MakeConstSpan(&leaver, 1), Soon()).status(), "await");
  ExpectLeft(world.rank(3).HasMessage(2).status(), "has message");
}

}  // namespace cohort::worker
