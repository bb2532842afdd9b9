// Members that send no keep-alive while their watch stream is open. An example is a process with a
// long C call that holds an interpreter's lock, so that its other threads cannot run.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Answers;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Stubs;

constexpr absl::Duration kLease = absl::Seconds(1);

// Rank 0 renews its lease whenever the test looks; rank 1 only watches.
class SilentMemberTest : public ::testing::Test {
 protected:
  SilentMemberTest() : coordinator_({"coordinator/cohort-coordinator", 0, {}}) {}

  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    for (int rank = 0; rank < 2; ++rank) {
      stubs_.push_back(std::make_unique<Stubs>(coordinator_.address(), rank));
    }
  }

  void Join(int attached_seconds) {
    Answers<grpc::Status> answers(2);
    std::vector<v1::JoinRequest> requests(2);
    std::vector<v1::JoinResponse> responses(2);
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    for (int rank = 0; rank < 2; ++rank) {
      contexts.push_back(testing::Context(kTimeout));
      requests[rank] = testing::JoinRequestOf("group", rank, 2);
      requests[rank].mutable_spec()->mutable_lease()->set_seconds(absl::ToInt64Seconds(kLease));
      requests[rank].mutable_spec()->mutable_attached_lease()->set_seconds(attached_seconds);
      stubs_[rank]->groups->async()->Join(contexts[rank].get(), &requests[rank], &responses[rank],
                                          answers.Slot(rank));
    }
    ASSERT_TRUE(answers.AwaitAll(kTimeout * 2));
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(answers[rank].ok()) << answers[rank].error_message();
      scopes_[rank].set_group("group");
      scopes_[rank].set_generation(responses[rank].generation());
      scopes_[rank].set_session(responses[rank].session());
    }
    v1::WatchGroupRequest watch;
    *watch.mutable_scope() = scopes_[1];
    watch.set_attach(true);
    stream_ = stubs_[1]->groups->WatchGroup(&stream_context_, watch);
    stream_->WaitForInitialMetadata();
  }
  void TearDown() override {
    stream_context_.TryCancel();
    if (stream_ != nullptr) stream_->Finish();
  }

  // Returns the group's state, and keeps rank 0 alive.
  v1::Group Look() {
    v1::KeepAliveRequest alive;
    *alive.mutable_scope() = scopes_[0];
    v1::KeepAliveResponse renewed;
    stubs_[0]->groups->KeepAlive(testing::Context().get(), alive, &renewed);
    v1::GetGroupRequest request;
    request.mutable_scope()->set_group("group");
    v1::GetGroupResponse response;
    EXPECT_TRUE(stubs_[0]->groups->GetGroup(testing::Context().get(), request, &response).ok());
    return response.group();
  }

  CoordinatorProcess coordinator_;
  std::vector<std::unique_ptr<Stubs>> stubs_;
  v1::Scope scopes_[2];
  grpc::ClientContext stream_context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchGroupResponse>> stream_;
};

TEST_F(SilentMemberTest, IsLiveWhileItsStreamStands) {
  ASSERT_NO_FATAL_FAILURE(Join(/*attached_seconds=*/60));
  v1::Group group;
  ASSERT_TRUE(testing::Eventually([&] {
    group = Look();
    return group.state() != v1::GROUP_STATE_ACTIVE || group.members(1).last_heard().seconds() >= 3;
  }));
  EXPECT_EQ(group.state(), v1::GROUP_STATE_ACTIVE) << group.cause().ShortDebugString();
  EXPECT_TRUE(group.members(1).attached());
  EXPECT_FALSE(group.members(0).attached());
  EXPECT_EQ(group.members(1).state(), v1::MEMBER_STATE_SUSPECTED);

  // A round's report shows that the member is silent.
  v1::BarrierRequest barrier;
  *barrier.mutable_scope() = scopes_[0];
  barrier.mutable_round()->mutable_wait()->set_nanos(100'000'000);
  v1::BarrierResponse missed;
  ASSERT_TRUE(stubs_[0]->messages->Barrier(testing::Context().get(), barrier, &missed).ok());
  ASSERT_EQ(missed.result().missing().details_size(), 1) << missed.ShortDebugString();
  EXPECT_TRUE(missed.result().missing().details(0).attached());
  EXPECT_GE(missed.result().missing().details(0).last_heard().seconds(), 3);

  // The member is lost when its stream ends.
  stream_context_.TryCancel();
  EXPECT_TRUE(testing::Eventually([&] { return Look().state() == v1::GROUP_STATE_BROKEN; }));
  EXPECT_EQ(Look().cause().kind(), v1::CAUSE_KIND_CONNECTION_LOST);
}

TEST_F(SilentMemberTest, IsLostAtTheSecondLimit) {
  ASSERT_NO_FATAL_FAILURE(Join(/*attached_seconds=*/3));
  v1::Group group;
  ASSERT_TRUE(testing::Eventually([&] {
    group = Look();
    return group.state() == v1::GROUP_STATE_BROKEN;
  }));
  EXPECT_EQ(group.cause().kind(), v1::CAUSE_KIND_LEASE_EXPIRED);
  EXPECT_EQ(group.cause().member(), "rank-1");
  EXPECT_THAT(group.cause().detail(), HasSubstr("its attached lease is 3s"));
}

}  // namespace
}  // namespace cohort
