// Ranks that die, leave, stop or stand still: which error the other ranks get, and how soon.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/testing/socket_group.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kLargeCount = int64_t{4} << 20;

absl::Status Sum(Communicator& group, int64_t count, Instant deadline = Soon()) {
  std::vector<float> input(static_cast<size_t>(count), 1);
  std::vector<float> output(static_cast<size_t>(count));
  return group.AllReduce(input.data(), output.data(), count, DataType::kF32, {ReduceOp::kSum},
                         deadline);
}

absl::Status Pass(Communicator& group, bool sends, int peer, int64_t count,
                  Instant deadline = Soon()) {
  std::vector<char> bytes(static_cast<size_t>(count));
  const Transfer transfer = sends ? Transfer::Send(peer, bytes.data(), count, DataType::kU8)
                                  : Transfer::Receive(peer, bytes.data(), count, DataType::kU8);
  return group.Exchange(absl::MakeConstSpan(&transfer, 1), deadline);
}

void ExpectAborted(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

// A rank in a process of its own. It writes one byte for each large sum that is done, and in the
// end the error that it got.
struct Child {
  pid_t pid = -1;
  UniqueFd said;

  Child(const TestGroup& group, int rank) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
      absl::Status status;
      {
        const auto communicator = group.Connect(rank);
        while (status.ok()) {
          status = Sum(*communicator, kLargeCount);
          if (status.ok() && write(ends[1], ".", 1) != 1) break;
        }
        const std::string text = status.ToString();
        [[maybe_unused]] const ssize_t written = write(ends[1], text.data(), text.size());
      }
      _exit(0);
    }
    close(ends[1]);
    said = UniqueFd(ends[0]);
  }
  // Returns an empty text if nothing arrives in time, or no more will.
  std::string ReadLine(Instant deadline) const {
    pollfd readable = {said.get(), POLLIN, 0};
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <= 0) return "";
    std::string text(1024, '\0');
    const ssize_t got = read(said.get(), &text[0], text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }
};

TEST(SocketFailureTest, AKilledRankIsNamedToAllOthersAtOnce) {
  const TestGroup group(3);
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) children.emplace_back(group, rank);
  // All are at it.
  for (const Child& child : children) ASSERT_NE(child.ReadLine(Soon()), "");
  ASSERT_EQ(kill(children[1].pid, SIGKILL), 0);
  const Instant killed = Clock::Steady().Now();
  for (const int rank : {0, 2}) {
    std::string text;
    while (!absl::StrContains(text, "ABORTED")) {
      const std::string more = children[static_cast<size_t>(rank)].ReadLine(Soon());
      ASSERT_NE(more, "") << "rank " << rank << ": " << text;
      text += more;
    }
    EXPECT_THAT(text, HasSubstr("ABORTED: rank 1 is gone: connection "));
  }
  // Milliseconds; a busy machine takes longer.
  EXPECT_LT(Clock::Steady().Now() - killed, absl::Seconds(5));
  for (const Child& child : children) waitpid(child.pid, nullptr, 0);
}

TEST(SocketFailureTest, AnAbortFromAnotherThreadReachesAll) {
  const TestGroup group(3);
  const auto ranks = group.ConnectAll();
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  // Two wait in a collective and one for a message; none of it ever comes.
  threads.emplace_back([&] { statuses[0] = ranks[0]->Barrier(Soon()); });
  threads.emplace_back([&] { statuses[1] = ranks[1]->Barrier(Soon()); });
  threads.emplace_back([&] { statuses[2] = Pass(*ranks[2], false, 0, 5); });
  ranks[2]->Abort("rank 2 aborted: enough");
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) ExpectAborted(status, "rank 2 aborted: enough");
}

TEST(SocketFailureTest, ARankThatLeavesIsMissedOnlyByRanksThatNeedIt) {
  const TestGroup group(3);
  auto ranks = group.ConnectAll();
  const auto run = [&](const std::vector<int>& who,
                       const std::function<absl::Status(Communicator&)>& body) {
    std::vector<absl::Status> statuses(3);
    std::vector<std::thread> threads;
    for (const int rank : who) {
      const size_t index = static_cast<size_t>(rank);
      threads.emplace_back([&, index] { statuses[index] = body(*ranks[index]); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  };
  for (const absl::Status& status :
       run({0, 1, 2}, [](Communicator& rank) { return Sum(rank, kLargeCount); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(Pass(*ranks[0], true, 2, 100).ok());
  ranks[0].reset();
  for (const int64_t count : {10, 1000000}) {
    for (const absl::Status& status : run({1, 2}, [&](Communicator& rank) {
           return Pass(rank, rank.rank() == 1, 3 - rank.rank(), count);
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // The message that it sent before it left is there.
  EXPECT_TRUE(Pass(*ranks[2], false, 0, 100).ok());
  ExpectAborted(ranks[2]->Barrier(Soon()), "rank 0 left the group");
  // The first may be lost; it is found out then at the latest.
  absl::Status sent;
  for (int i = 0; i < 1000 && sent.ok(); ++i) sent = Pass(*ranks[1], true, 0, 10);
  ExpectAborted(sent, "rank 0 left the group");
}

// Its end was seen by a call that did not need it.
TEST(SocketFailureTest, ARankThatLeftDuringAnotherCallIsNamedByTheNextCall) {
  const TestGroup group(3);
  auto ranks = group.ConnectAll();
  ranks[0].reset();
  const int peers[] = {1};
  EXPECT_EQ(ranks[2]->AwaitMessage(peers, In(absl::Milliseconds(100))).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  ExpectAborted(ranks[2]->Barrier(In(absl::Seconds(20))), "rank 0 left the group");
}

// Data that is on its way when a rank leaves still arrives.
TEST(SocketFailureTest, ARankThatLeavesHasSentItsPart) {
  const TestGroup group(3);
  for (int round = 0; round < 10; ++round) {
    auto ranks = group.ConnectAll();
    std::vector<absl::Status> statuses(3);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        statuses[rank] = Sum(*ranks[rank], kLargeCount);
        const int peer = rank == 0 ? 1 : 0;
        if (rank < 2 && statuses[rank].ok()) {
          statuses[rank] = Pass(*ranks[rank], rank == 0, peer, kLargeCount);
        }
        ranks[rank].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }
}

// Small messages do not wait for their receiver, but there is an end to it.
TEST(SocketFailureTest, UnreceivedMessagesAreBounded) {
  const TestGroup group(2);
  const auto ranks = group.ConnectAll();
  absl::Status status;
  int sent = 0;
  while (status.ok() && sent < 100000) {
    status = Pass(*ranks[0], true, 1, 1000, In(absl::Milliseconds(100)));
    if (status.ok()) ++sent;
  }
  EXPECT_GT(sent, 10);
  EXPECT_LT(sent, 1000);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("send of 1000 u8 to rank 1: rank 1"));
  // The messages that were sent before are there; then the rank sees the end.
  absl::Status end;
  int received = 0;
  while (end.ok() && received <= sent) {
    end = Pass(*ranks[1], false, 0, 1000);
    if (end.ok()) ++received;
  }
  EXPECT_LE(received, sent);
  ExpectAborted(end, "rank 0 gave up send of 1000 u8 to rank 1");
}

// Rank 1 comes to the operation and sends no byte of its part.
TEST(SocketFailureTest, ADeadlineInTheMiddleNamesTheStoppedRank) {
  TestGroup group(2);
  group.tls = nullptr;
  MeshOptions options;
  options.rank = 1;
  options.addresses = group.addresses;
  options.secret = kTestSecret;
  options.streams = 3;
  absl::StatusOr<Mesh> mesh;
  std::thread connecting([&] { mesh = ConnectMesh(group.listeners[1], options, Soon()); });
  const auto rank = group.Connect(0);
  connecting.join();
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  FlatCall operation;
  operation.collective = Collective::kAllReduce;
  operation.count = kLargeCount;
  operation.type = DataType::kF32;
  FrameHeader header;
  header.number = 1;
  header.key = KeyOf(operation);
  ASSERT_EQ(send(mesh->streams[0][0].fd(), &header, sizeof(header), 0),
            static_cast<ssize_t>(sizeof(header)));
  const absl::Status status = Sum(*rank, kLargeCount, In(absl::Milliseconds(50)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(status.message(), "all_reduce of 4194304 f32 by sum: rank 1 did not finish");
}

}  // namespace
}  // namespace cohort::worker
