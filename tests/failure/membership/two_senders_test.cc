// Two senders to one receiver under one tag: no object is lost or overwritten, and each sender's
// order is kept.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Answers;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::JoinAll;
using testing::kTimeout;
using testing::Members;

constexpr int kReceiver = 2;

// The object has its sender, its index and a size of its own, so that a mixed-up one is noticed.
std::string Object(int sender, int index) {
  return absl::StrCat(sender, ":", index, ":",
                      std::string((index * 37 + sender) % 500, 'a' + index % 26));
}

class TwoSendersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    members_ = JoinAll({Connect(coordinator_.address()), Connect(coordinator_.address()),
                        Connect(coordinator_.address())},
                       "senders", 3);
    for (const auto& member : members_) ASSERT_NE(member, nullptr);
  }

  void SendAll(int sender, int count) {
    for (int index = 0; index < count; ++index) {
      const absl::Status status = members_[sender]->Send(Object(sender, index), kReceiver);
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  void ExpectNothingHeld() {
    client::GroupStats stats;
    EXPECT_TRUE(testing::Eventually([&] {
      const absl::StatusOr<client::GroupStats> now = members_[kReceiver]->Stats();
      if (now.ok()) stats = *now;
      return now.ok() && stats.bytes_held == 0;
    })) << stats.object_count
        << " objects, " << stats.unacknowledged_count << " unacknowledged, " << stats.bytes_held
        << " bytes";
  }

  CoordinatorProcess coordinator_{{}};
  Members members_;
};

TEST_F(TwoSendersTest, EachKeepsItsOrderWhenReadBySource) {
  constexpr int kCount = 3000;
  std::mt19937_64 random(testing::TestSeed());
  testing::OnThreads(3, [&](int rank) {
    if (rank != kReceiver) return SendAll(rank, kCount);
    int next[2] = {0, 0};
    while (next[0] + next[1] < 2 * kCount) {
      int source = random() % 2;
      if (next[source] == kCount) source = 1 - source;
      const absl::StatusOr<std::string> object = members_[kReceiver]->Receive(source);
      ASSERT_TRUE(object.ok()) << object.status();
      ASSERT_EQ(*object, Object(source, next[source]));
      ++next[source];
    }
  });
  ExpectNothingHeld();
}

TEST_F(TwoSendersTest, EachKeepsItsOrderWhenReadFromAny) {
  constexpr int kCount = 3000;
  testing::OnThreads(3, [&](int rank) {
    if (rank != kReceiver) return SendAll(rank, kCount);
    int next[2] = {0, 0};
    while (next[0] + next[1] < 2 * kCount) {
      const absl::StatusOr<client::ReceivedObject> object = members_[kReceiver]->ReceiveAny();
      ASSERT_TRUE(object.ok()) << object.status();
      ASSERT_THAT(object->source, ::testing::AnyOf(0, 1));
      ASSERT_EQ(object->bytes, Object(object->source, next[object->source]));
      ++next[object->source];
    }
  });
  ExpectNothingHeld();
}

TEST_F(TwoSendersTest, EachKeepsItsOrderWithManySendsInFlight) {
  constexpr int kCount = 2000;
  Answers<absl::Status> sent(2 * kCount);
  for (int index = 0; index < kCount; ++index) {
    for (const int sender : {0, 1}) {
      members_[sender]->async().Send(Object(sender, index), kReceiver, "", {},
                                  sent.Slot(2 * index + sender));
    }
  }
  ASSERT_TRUE(sent.AwaitAll());
  for (int index = 0; index < 2 * kCount; ++index) ASSERT_TRUE(sent[index].ok()) << sent[index];

  for (const int sender : {0, 1}) {
    for (int index = 0; index < kCount; ++index) {
      const absl::StatusOr<std::string> object = members_[kReceiver]->Receive(sender);
      ASSERT_TRUE(object.ok()) << object.status();
      ASSERT_EQ(*object, Object(sender, index));
    }
  }
  ExpectNothingHeld();
}

}  // namespace
}  // namespace cohort
