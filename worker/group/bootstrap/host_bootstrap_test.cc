// Ranks that come late, lie, or send something that is not memory: the other ranks get the reason,
// and no rank waits.
#include "worker/group/bootstrap/host_bootstrap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using shm::LocalListener;
using shm::LocalSocket;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kHeapBytes = 4096;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

class HostBootstrapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      listeners_.push_back(*LocalListener::Create());
      candidates_.push_back({rank, listeners_.back().name(), kHeapBytes});
    }
  }

  HostBootstrapOptions OptionsOf(int rank) const {
    HostBootstrapOptions options;
    options.rank = rank;
    options.candidates = candidates_;
    options.secret = {1, 2};
    options.listener = &listeners_[static_cast<size_t>(rank)];
    options.heap = std::make_shared<shm::Segment>(*shm::Segment::Create("test", kHeapBytes));
    return options;
  }

  // The first message of rank 1.
  static std::string Hello() {
    struct {
      uint64_t magic = 0x434F484F52540102;
      uint64_t secret[2] = {1, 2};
      int32_t rank = 1;
    } hello;
    std::string bytes(sizeof(hello), '\0');
    std::memcpy(&bytes[0], &hello.magic, sizeof(hello.magic));
    std::memcpy(&bytes[8], hello.secret, sizeof(hello.secret));
    std::memcpy(&bytes[24], &hello.rank, sizeof(hello.rank));
    return bytes;
  }

  // Runs rank 0 with one other rank, whose hello comes with `fds`.
  absl::StatusOr<HostMembers> LeadOne(const std::vector<int>& fds, std::string* answer) {
    std::thread other([&] {
      const absl::StatusOr<LocalSocket> socket = LocalSocket::Connect(listeners_[0].name(), Soon());
      ASSERT_TRUE(socket.ok() && socket->Send(Hello(), fds, Soon()).ok());
      const absl::StatusOr<LocalSocket::Message> message = socket->Receive(Soon());
      *answer = message.ok() ? message->bytes : message.status().ToString();
    });
    absl::StatusOr<HostMembers> members = BootstrapHost(OptionsOf(0), Soon());
    other.join();
    return members;
  }

  void ExpectLeftOut(const absl::StatusOr<HostMembers>& members, const std::string& why) {
    ASSERT_TRUE(members.ok()) << members.status();
    EXPECT_THAT(members->ranks, ElementsAre(0));
    EXPECT_THAT(members->why_not, HasSubstr("rank 1"));
    EXPECT_THAT(members->why_not, HasSubstr(why));
  }

  std::vector<LocalListener> listeners_;
  std::vector<HostCandidate> candidates_;
};

TEST_F(HostBootstrapTest, TwoRanksShareMemory) {
  absl::StatusOr<HostMembers> second;
  std::thread other([&] { second = BootstrapHost(OptionsOf(1), Soon()); });
  const absl::StatusOr<HostMembers> first = BootstrapHost(OptionsOf(0), Soon());
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT(first->ranks, ElementsAre(0, 1));
  EXPECT_THAT(second->ranks, ElementsAre(0, 1));
}

// There are more silent connections than rank 0 keeps at once.
TEST_F(HostBootstrapTest, SilentConnectionsDoNotDelayRanks) {
  std::vector<LocalSocket> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(*LocalSocket::Connect(listeners_[0].name(), Soon()));
  }
  HostBootstrapOptions options[] = {OptionsOf(0), OptionsOf(1)};
  for (HostBootstrapOptions& each : options) each.window = absl::Hours(1);
  // If each silent connection caused a delay of a second, the ranks would miss this deadline.
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
  absl::StatusOr<HostMembers> second;
  std::thread other([&] { second = BootstrapHost(options[1], deadline); });
  const absl::StatusOr<HostMembers> first = BootstrapHost(options[0], deadline);
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT(first->ranks, ElementsAre(0, 1)) << first->why_not;
  EXPECT_THAT(second->ranks, ElementsAre(0, 1)) << second->why_not;
}

TEST_F(HostBootstrapTest, TheFurtherSegmentIsSharedByAllRanksOrByNoRank) {
  HostBootstrapOptions options[] = {OptionsOf(0), OptionsOf(1)};
  for (HostBootstrapOptions& each : options) each.common_bytes = 8192;
  absl::StatusOr<HostMembers> second;
  std::thread other([&] { second = BootstrapHost(options[1], Soon()); });
  const absl::StatusOr<HostMembers> first = BootstrapHost(options[0], Soon());
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  ASSERT_EQ(first->common.size(), 8192u);
  ASSERT_EQ(second->common.size(), 8192u);
  first->common.data()[8191] = 'x';
  EXPECT_EQ(second->common.data()[8191], 'x');

  listeners_.clear();
  candidates_.clear();
  SetUp();
  HostBootstrapOptions alone = OptionsOf(0);
  alone.common_bytes = 8192;
  alone.window = absl::Milliseconds(1);
  const absl::StatusOr<HostMembers> formed = BootstrapHost(alone, Soon());
  ASSERT_TRUE(formed.ok()) << formed.status();
  EXPECT_EQ(formed->common.size(), 0u);
}

// The first rank announces a further segment. Its descriptor is not sealed, of another size, or
// missing.
TEST_F(HostBootstrapTest, AFurtherSegmentMustBeSealedAndOfThatSize) {
  const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 8192), 0);
  const absl::StatusOr<shm::Segment> small = shm::Segment::Create("small", 64);
  const absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(2);
  ASSERT_TRUE(small.ok() && space.ok());
  const std::pair<int, std::string> strange[] = {{loose.get(), "its size is not sealed"},
                                                 {small->fd(), "another size"},
                                                 {-1, "welcome is malformed"}};
  for (const auto& [fd, why] : strange) {
    listeners_.clear();
    candidates_.clear();
    SetUp();
    HostBootstrapOptions options = OptionsOf(1);
    options.common_bytes = 8192;
    std::thread first([&, fd = fd, &why = why] {
      const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
      const absl::StatusOr<LocalSocket::Message> hello = socket->Receive(Soon());
      ASSERT_TRUE(hello.ok() && hello->fds.size() == 1);
      const struct {
        uint64_t magic = 0x434F484F52540102;
        int32_t numbers[4] = {2, 1, 0, 1};  // ranks, whether there is a segment, their numbers
      } welcome;
      const int heap = hello->fds[0].get();
      std::vector<int> fds = {space->fd(), heap, heap};
      if (fd >= 0) fds.push_back(fd);
      const absl::string_view bytes(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
      ASSERT_TRUE(socket->Send(bytes, fds, Soon()).ok());
      // If the segment is missing, the further message has no descriptor.
      if (fd < 0) {
        ASSERT_TRUE(socket->Send("m", {}, Soon()).ok());
      }
      EXPECT_THAT(socket->Receive(Soon())->bytes, HasSubstr(why));
      ASSERT_TRUE(socket->Send("r", {}, Soon()).ok());
    });
    EXPECT_FALSE(BootstrapHost(options, Soon()).ok());
    first.join();
  }
}

// Reads of memory that shrinks later would end the reader.
TEST_F(HostBootstrapTest, MemoryWhoseSizeIsNotSealedIsLeftOut) {
  for (const int seals : {0, F_SEAL_GROW | F_SEAL_SEAL}) {
    const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(loose.get(), kHeapBytes), 0);
    ASSERT_EQ(fcntl(loose.get(), F_ADD_SEALS, seals), 0);
    // A listener serves one group.
    listeners_.clear();
    candidates_.clear();
    SetUp();
    std::string answer;
    ExpectLeftOut(LeadOne({loose.get()}, &answer), "its size is not sealed");
    EXPECT_THAT(answer, HasSubstr("its size is not sealed"));
  }
}

TEST_F(HostBootstrapTest, ARankWithoutMemoryIsLeftOutAtOnce) {
  std::string answer;
  ExpectLeftOut(LeadOne({}, &answer), "0 descriptors");
  EXPECT_THAT(answer, HasSubstr("0 descriptors"));
}

TEST_F(HostBootstrapTest, MemoryOfAnotherSizeIsLeftOut) {
  const absl::StatusOr<shm::Segment> small = shm::Segment::Create("small", 64);
  std::string answer;
  ExpectLeftOut(LeadOne({small->fd()}, &answer), "another size");
}

TEST_F(HostBootstrapTest, ARankThatComesTooLateIsAloneAndDoesNotWait) {
  HostBootstrapOptions options = OptionsOf(0);
  options.window = absl::Milliseconds(1);
  ASSERT_TRUE(BootstrapHost(options, Soon()).ok());
  const absl::StatusOr<HostMembers> late = BootstrapHost(OptionsOf(1), Soon());
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_THAT(late->ranks, ElementsAre(1));
  EXPECT_THAT(late->why_not, HasSubstr("rank 0"));
}

// The first rank accepts the connection, reads the hello, and closes it.
TEST_F(HostBootstrapTest, ARankThatTheFirstHangsUpOnIsAlone) {
  std::thread first([&] {
    const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
    ASSERT_TRUE(socket.ok() && socket->Receive(Soon()).ok());
  });
  const absl::StatusOr<HostMembers> members = BootstrapHost(OptionsOf(1), Soon());
  first.join();
  ASSERT_TRUE(members.ok()) << members.status();
  EXPECT_THAT(members->ranks, ElementsAre(1));
  EXPECT_THAT(members->why_not, HasSubstr("rank 0"));
}

TEST_F(HostBootstrapTest, MalformedWelcomesAreErrors) {
  const auto welcome = [](std::vector<int32_t> ranks) {
    std::string bytes(16, '\0');
    const uint64_t magic = 0x434F484F52540102;
    const auto count = static_cast<int32_t>(ranks.size());
    std::memcpy(&bytes[0], &magic, sizeof(magic));
    std::memcpy(&bytes[8], &count, sizeof(count));
    return bytes.append(reinterpret_cast<const char*>(ranks.data()), ranks.size() * 4);
  };
  for (const std::string& message :
       {std::string("x"), welcome({}), welcome({0, 0}), welcome({1, 0}), welcome({0, 2}),
        welcome({0, 1, 2}), welcome({1, 1}), welcome({0, 1}).substr(0, 20)}) {
    std::thread first([&] {
      const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
      ASSERT_TRUE(socket.ok() && socket->Receive(Soon()).ok());
      ASSERT_TRUE(socket->Send(message, {}, Soon()).ok());
      EXPECT_THAT(socket->Receive(Soon())->bytes, HasSubstr("welcome is malformed"));
      ASSERT_TRUE(socket->Send("r", {}, Soon()).ok());
    });
    const absl::Status status = BootstrapHost(OptionsOf(1), Soon()).status();
    first.join();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
}

TEST_F(HostBootstrapTest, TheErrorOfTheFirstRankReachesWaitingRanks) {
  std::thread first([&] {
    const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
    ASSERT_TRUE(socket.ok() && socket->Receive(Soon()).ok());
    ASSERT_TRUE(socket->Send("frank 7 has no room", {}, Soon()).ok());
  });
  const absl::Status status = BootstrapHost(OptionsOf(1), Soon()).status();
  first.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 7 has no room"));
}

}  // namespace
}  // namespace cohort::worker
