// One member floods a mailbox: it gets an error that names the limit, and no other member is
// affected.
#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Answers;
using testing::Connect;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::JoinAll;
using testing::kTimeout;
using testing::Members;

constexpr int kWorldSize = 4;

class FloodTest : public ::testing::Test {
 protected:
  void Join(std::vector<std::string> flags) {
    CoordinatorProcess::Options options;
    options.flags = std::move(flags);
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    ASSERT_TRUE(coordinator_->Start().ok());
    std::vector<std::shared_ptr<client::Connection>> connections;
    for (int rank = 0; rank < kWorldSize; ++rank)
      connections.push_back(Connect(coordinator_->address()));
    members_ = JoinAll(connections, "group", kWorldSize);
    for (const auto& member : members_) ASSERT_NE(member, nullptr);
  }

  // Rank 0 sends to rank 1 until `more` sends have been refused. Returns how many were taken.
  int Flood(int more, const std::string& object, const std::string& limit) {
    int taken_count = 0;
    while (more > 0) {
      const absl::Status status = members_[0]->Send(object, 1);
      if (status.ok()) {
        ++taken_count;
        continue;
      }
      --more;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(limit));
      if (status.code() != absl::StatusCode::kResourceExhausted) break;
    }
    return taken_count;
  }

  std::unique_ptr<CoordinatorProcess> coordinator_;
  Members members_;
};

TEST_F(FloodTest, AFullMailboxIsRefusedByNameAndOthersAreUnaffected) {
  constexpr int kDepth = 1000;
  ASSERT_NO_FATAL_FAILURE(Join({"--limit", "max_mailbox_depth=1000"}));
  std::atomic<bool> stop = false;
  absl::Duration longest;
  int exchanged_count = 0;
  testing::OnThreads(3, [&](int index) {
    if (index == 0) {
      EXPECT_EQ(Flood(2000, std::string(100, 'x'), "max_mailbox_depth"), kDepth);
      stop = true;
    } else if (index == 1) {
      while (!stop) {
        const Instant start = Clock::Steady().Now();
        ASSERT_TRUE(members_[2]->Send("ping", 3).ok());
        // Ranks 2 and 3 exchange objects during the flood.
        const absl::StatusOr<std::string> answer = members_[2]->Receive(3);
        ASSERT_TRUE(answer.ok()) << answer.status();
        longest = std::max(longest, Clock::Steady().Now() - start);
        ++exchanged_count;
      }
      ASSERT_TRUE(members_[2]->Send("end", 3).ok());
    } else {
      while (true) {
        const absl::StatusOr<std::string> object = members_[3]->Receive(2);
        ASSERT_TRUE(object.ok()) << object.status();
        if (*object == "end") return;
        ASSERT_TRUE(members_[3]->Send("pong", 2).ok());
      }
    }
  });
  std::cout << exchanged_count << " exchanges beside the flood, the longest took " << longest
            << std::endl;
  EXPECT_GT(exchanged_count, 0);

  EXPECT_TRUE(members_[0]->Send("other tag", 1, "side").ok());
  EXPECT_TRUE(members_[2]->Send("other sender", 1).ok());
  EXPECT_EQ(members_[1]->Receive(2).value_or("nothing"), "other sender");
  EXPECT_EQ(members_[1]->Receive(0, "side").value_or("nothing"), "other tag");
  for (int index = 0; index < kDepth; ++index) ASSERT_TRUE(members_[1]->Receive(0).ok());
  EXPECT_TRUE(members_[0]->Send("again", 1).ok());
  EXPECT_EQ(members_[1]->Receive(0).value_or("nothing"), "again");
}

TEST_F(FloodTest, ManySendsInFlightAreEachAnsweredAndNoMoreAreTakenThanTheLimit) {
  constexpr int kDepth = 500;
  constexpr int kSends = 3000;
  ASSERT_NO_FATAL_FAILURE(Join({"--limit", "max_mailbox_depth=500"}));
  Answers<absl::Status> answers(kSends);
  for (int index = 0; index < kSends; ++index) {
    members_[0]->async().Send("object", 1, "", {}, answers.Slot(index));
  }
  ASSERT_TRUE(answers.AwaitAll());
  int taken_count = 0;
  for (int index = 0; index < kSends; ++index) {
    if (answers[index].ok()) {
      ++taken_count;
    } else {
      EXPECT_EQ(answers[index].code(), absl::StatusCode::kResourceExhausted) << answers[index];
    }
  }
  EXPECT_EQ(taken_count, kDepth);
  EXPECT_EQ(members_[1]->Stats()->object_count, kDepth);
}

TEST_F(FloodTest, AGroupThatHoldsTooManyBytesIsRefusedByNameAndOtherGroupsAreUnaffected) {
  ASSERT_NO_FATAL_FAILURE(Join({"--limit", "max_group_bytes_held=8388608"}));
  const int taken_count = Flood(20, std::string(512 << 10, 'x'), "max_group_bytes_held");
  EXPECT_GE(taken_count, 15);
  EXPECT_LE(taken_count, 16);
  Members others = JoinAll({Connect(coordinator_->address())}, "other", 2);
  ASSERT_NE(others[0], nullptr);
  EXPECT_TRUE(others[0]->Send(std::string(512 << 10, 'y'), 1).ok());
  EXPECT_EQ(others[1]->Receive(0).value_or("").size(), 512 << 10);
  // Barriers of the full group hold no values, and still work.
  testing::OnThreads(kWorldSize, [&](int rank) {
    const absl::Status status = members_[rank]->Barrier();
    EXPECT_TRUE(status.ok()) << status;
  });
}

}  // namespace
}  // namespace cohort
