#include "worker/communicator/host/host_mailbox.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/error_ranks.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

// More ranks than processors: then a sender does not wait for messages of several pieces either.
constexpr int kRanks = 200;

class HostMailboxTest : public ::testing::Test {
 protected:
  HostMailboxTest() : space_(*HostSharedMemory::Create(kRanks)) {
    EXPECT_TRUE(space_.crowded());
    // All other ranks seem to sleep.
    space_.sleepers().store(kRanks - 1);
    for (int rank = 1; rank < kRanks; ++rank) space_.sleep_words(rank).sleeps.store(1);
  }
  uint32_t WakesOf(int rank) const { return space_.sleep_words(rank).event.load(); }

  const HostSharedMemory space_;
  const RankHeaps heaps_{kRanks};
  const FutexWaiter waiter_{space_, 0};
  HostMailbox mailbox_{space_, heaps_, waiter_, 0};
};

TEST_F(HostMailboxTest, EachPeerIsWokenOnceForWhatItIsSent) {
  constexpr int kPeers = 20;
  // The large message has several pieces and does not make the sender wait. Small messages follow
  // it.
  const std::vector<char> large(20000);
  std::vector<Transfer> transfers;
  for (int peer = 1; peer <= kPeers; ++peer) {
    transfers.push_back(Transfer::Send(peer, large.data(), 20000, DataType::kU8));
    for (int small = 0; small < 3; ++small) {
      transfers.push_back(Transfer::Send(peer, large.data(), 1, DataType::kU8));
    }
  }
  const absl::Status sent = mailbox_.Exchange(transfers, Soon());
  ASSERT_TRUE(sent.ok()) << sent;
  uint32_t wakes = 0;
  for (int peer = 1; peer <= kPeers; ++peer) {
    EXPECT_GE(WakesOf(peer), 1u) << "rank " << peer;
    wakes += WakesOf(peer);
  }
  // Once for the large one, while the next is copied, or for all.
  EXPECT_LE(wakes, 2u * kPeers);
  EXPECT_EQ(WakesOf(kPeers + 1), 0u) << "nothing came to it";
}

// A sender that waits for room sleeps until its receiver takes something.
TEST_F(HostMailboxTest, APeerIsWokenWhenWhatItSentIsTaken) {
  FragmentLine& line = space_.channel(1, 0, MessageChannel::kData).line(1);
  line.count = 1;
  line.type = static_cast<uint8_t>(DataType::kU8);
  line.offset = -1;
  line.bytes = 1;
  line.number.store(1);
  char byte = 0;
  const Transfer receive = Transfer::Receive(1, &byte, 1, DataType::kU8);
  const absl::Status received = mailbox_.Exchange(absl::MakeConstSpan(&receive, 1), Soon());
  ASSERT_TRUE(received.ok()) << received;
  EXPECT_EQ(WakesOf(1), 1u);
  EXPECT_EQ(WakesOf(2), 0u);
}

// Another process may write anything.
TEST_F(HostMailboxTest, AControlMessageFitsInItsLine) {
  for (const int64_t count : {int64_t{16}, int64_t{100000}}) {
    const HostSharedMemory space = *HostSharedMemory::Create(2);
    const RankHeaps heaps(2);
    const FutexWaiter waiter(space, 0);
    HostMailbox mailbox(space, heaps, waiter, 0, MessageChannel::kControl);
    FragmentLine& line = space.channel(1, 0, MessageChannel::kControl).line(1);
    line.count = count;
    line.type = static_cast<uint8_t>(DataType::kU8);
    line.offset = 0;
    line.bytes = 1000;
    line.number.store(1);
    char message[16];
    const Transfer receive = Transfer::Receive(1, message, sizeof(message), DataType::kU8);
    const absl::Status status = mailbox.Exchange(absl::MakeConstSpan(&receive, 1), Soon());
    EXPECT_EQ(status, AbortError("rank 1 sends a fragment that does not fit its message"));
  }
}

TEST_F(HostMailboxTest, AnAwaitedMessageOfImpossibleSizeEndsTheCommunicator) {
  for (const int type : {0, 200, static_cast<int>(DataType::kF64)}) {
    const HostSharedMemory space = *HostSharedMemory::Create(2);
    const RankHeaps heaps(2);
    const FutexWaiter waiter(space, 0);
    HostMailbox mailbox(space, heaps, waiter, 0);
    FragmentLine& line = space.channel(1, 0).line(1);
    line.count = int64_t{1} << 62;
    line.type = static_cast<uint8_t>(type);
    line.number.store(1);
    const int peer = 1;
    const absl::Status status =
        mailbox.AwaitMessage(absl::MakeConstSpan(&peer, 1), Soon()).status();
    EXPECT_EQ(status, AbortError(absl::StrCat("rank 1 announces a message of ", line.count,
                                                      " elements of type ", type)));
  }
}

// The rest of the message may come later, and would be taken for the next one.
TEST_F(HostMailboxTest, AMessageThatStopsHalfwayEndsTheCommunicator) {
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  const RankHeaps heaps(2);
  const FutexWaiter waiter(space, 0);
  HostMailbox mailbox(space, heaps, waiter, 0);
  FragmentLine& line = space.channel(1, 0, MessageChannel::kData).line(1);
  line.count = 20000;
  line.type = static_cast<uint8_t>(DataType::kU8);
  line.offset = -1;
  line.bytes = 10;
  line.number.store(1);
  std::vector<char> message(20000);
  const Transfer receive = Transfer::Receive(1, message.data(), 20000, DataType::kU8);
  const absl::Status late = mailbox.Exchange(absl::MakeConstSpan(&receive, 1),
                                             Clock::Steady().Now() + absl::Milliseconds(10));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  const absl::Status next = mailbox.Exchange(absl::MakeConstSpan(&receive, 1), Soon());
  EXPECT_EQ(next, AbortError("rank 0 gave up receive of 20000 u8 from rank 1: it did not "
                                     "come"));
}

// None of them has begun, so the communicator goes on.
TEST_F(HostMailboxTest, OnlyTheSendersThatHaveNotComeAreMissing) {
  const auto arrives = [this](int rank, uint64_t number) {
    FragmentLine& line = space_.channel(rank, 0, MessageChannel::kData).line(number);
    line.count = 1;
    line.type = static_cast<uint8_t>(DataType::kU8);
    line.offset = -1;
    line.bytes = 1;
    line.number.store(number);
  };
  arrives(2, 1);
  char bytes[3];
  std::vector<Transfer> receives;
  for (int rank = 1; rank <= 3; ++rank)
    receives.push_back(Transfer::Receive(rank, &bytes[rank - 1], 1, DataType::kU8));
  const absl::Status late =
      mailbox_.Exchange(receives, Clock::Steady().Now() + absl::Milliseconds(10));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(),
            "receive of 1 u8 from rank 1, receive of 1 u8 from rank 3: it did not come");
  EXPECT_EQ(MissingRanksOf(late), (std::vector<RankRange>{{1, 1}, {3, 3}}));
  arrives(1, 1);
  arrives(2, 2);
  arrives(3, 1);
  const absl::Status received = mailbox_.Exchange(receives, Soon());
  EXPECT_TRUE(received.ok()) << received;
}

// Also a message that the channel would hold without its receiver. Messages of the rank from before
// still arrive, and those of other ranks pass.
TEST_F(HostMailboxTest, OnlyASendToARankThatHasLeftFails) {
  const HostSharedMemory space = *HostSharedMemory::Create(3);
  const RankHeaps heaps(3);
  FutexWaiter waiter(space, 0);
  HostMailbox mailbox(space, heaps, waiter, 0);
  FragmentLine& line = space.channel(1, 0, MessageChannel::kData).line(1);
  line.count = 1;
  line.type = static_cast<uint8_t>(DataType::kU8);
  line.offset = -1;
  line.bytes = 1;
  line.data[0] = 'w';
  line.number.store(1);
  waiter.SetLeft(1, 1, "rank 1 left the group");
  const char out = 'x';
  char in = 0;
  const std::vector<Transfer> transfers = {Transfer::Send(1, &out, 1, DataType::kU8),
                                           Transfer::Receive(1, &in, 1, DataType::kU8),
                                           Transfer::Send(2, &out, 1, DataType::kU8)};
  EXPECT_EQ(mailbox.Exchange(transfers, Soon()), LeftError("rank 1 left the group"));
  EXPECT_EQ(in, 'w');
  EXPECT_EQ(space.channel(0, 1, MessageChannel::kData).line(1).number.load(), 0u);
  EXPECT_EQ(space.channel(0, 2, MessageChannel::kData).line(1).number.load(), 1u);
  EXPECT_EQ(mailbox.Exchange(absl::MakeConstSpan(transfers).subspan(1, 1), Soon()),
            LeftError("rank 1 left the group"))
      << "it sent no second message";
}

TEST_F(HostMailboxTest, AWaitWithoutTimeLooksOnce) {
  const int peers[] = {1, 2};
  for (const size_t count : {size_t{1}, size_t{2}}) {
    for (const Instant deadline : {absl::InfinitePast(), Clock::Steady().Now()}) {
      const absl::StatusOr<MessageInfo> none =
          mailbox_.AwaitMessage(absl::MakeConstSpan(peers, count), deadline);
      EXPECT_EQ(none.status(), absl::DeadlineExceededError(count == 1 ? "no message of rank 1"
                                                                      : "no message of rank 1-2"));
    }
  }
}

}  // namespace
}  // namespace cohort::worker
