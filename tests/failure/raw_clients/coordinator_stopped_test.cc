// A coordinator that is stopped for longer than a lease loses no live member when it continues.
#include <signal.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/testing/framed_rpc_test_client.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Answers;
using testing::CoordinatorProcess;
using testing::kTimeout;
using testing::Stubs;

constexpr int kWorldSize = 4;
constexpr absl::Duration kLease = absl::Milliseconds(1500);
constexpr absl::Duration kStopped = absl::Seconds(4);

// A member by bare stubs: one connection, and a keep-alive at a third of the lease.
class Member {
 public:
  Member(const std::string& address, int rank) : rank_(rank), stubs_(address, rank) {}
  ~Member() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void JoinAsync(Answers<grpc::Status>& answers) {
    join_request_ = testing::JoinRequestOf("group", rank_, kWorldSize);
    *join_request_.mutable_spec()->mutable_lease() = ToProto(kLease);
    stubs_.groups->async()->Join(join_context_.get(), &join_request_, &joined_, answers.Slot(rank_));
  }
  void Begin() {
    scope_.set_group("group");
    scope_.set_generation(joined_.generation());
    scope_.set_session(joined_.session());
    thread_ = std::thread([this] {
      while (!stop_) {
        v1::KeepAliveRequest request;
        *request.mutable_scope() = scope_;
        v1::KeepAliveResponse response;
        // The call waits until the coordinator continues.
        const grpc::Status status =
            stubs_.groups->KeepAlive(testing::Context(kTimeout).get(), request, &response);
        if (status.ok()) ++renewals_;
        const Instant next = Clock::Steady().Now() + kLease / 3;
        testing::Eventually([&] { return stop_ || Clock::Steady().Now() >= next; });
      }
    });
  }
  const v1::Scope& scope() const { return scope_; }
  Stubs& stubs() { return stubs_; }
  int renewals() const { return renewals_; }

 private:
  static google::protobuf::Duration ToProto(absl::Duration duration) {
    google::protobuf::Duration result;
    result.set_seconds(absl::ToInt64Seconds(duration));
    result.set_nanos(absl::ToInt64Nanoseconds(duration % absl::Seconds(1)));
    return result;
  }

  const int rank_;
  Stubs stubs_;
  v1::JoinRequest join_request_;
  v1::JoinResponse joined_;
  const std::unique_ptr<grpc::ClientContext> join_context_ = testing::Context(kTimeout);
  v1::Scope scope_;
  std::atomic<bool> stop_{false};
  std::atomic<int> renewals_{0};
  std::thread thread_;
};

bool Passes(absl::Duration time) {
  const Instant begun = Clock::Steady().Now();
  return testing::Eventually([&] { return Clock::Steady().Now() - begun > time; });
}

TEST(CoordinatorStopped, ForLongerThanALeaseLosesNoLiveMember) {
  CoordinatorProcess coordinator({});
  ASSERT_TRUE(coordinator.Start().ok());
  std::vector<std::unique_ptr<Member>> members;
  Answers<grpc::Status> joined(kWorldSize);
  for (int rank = 0; rank < kWorldSize; ++rank) {
    members.push_back(std::make_unique<Member>(coordinator.address(), rank));
    members.back()->JoinAsync(joined);
  }
  ASSERT_TRUE(joined.AwaitAll());
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ASSERT_TRUE(joined[rank].ok()) << joined[rank].error_message();
    members[rank]->Begin();
  }
  const auto all_renewed = [&](int more) {
    std::vector<int> before;
    for (const auto& member : members) before.push_back(member->renewals());
    return testing::Eventually([&] {
      for (int rank = 0; rank < kWorldSize; ++rank) {
        if (members[rank]->renewals() < before[rank] + more) return false;
      }
      return true;
    });
  };
  ASSERT_TRUE(all_renewed(1));

  coordinator.Pause();
  ASSERT_TRUE(Passes(kStopped));
  coordinator.Resume();

  ASSERT_TRUE(all_renewed(2)) << "keep-alives were refused";
  v1::GetGroupRequest request;
  request.mutable_scope()->set_group("group");
  v1::GetGroupResponse response;
  ASSERT_TRUE(members[0]->stubs().groups->GetGroup(testing::Context().get(), request, &response).ok());
  EXPECT_EQ(response.group().state(), v1::GROUP_STATE_ACTIVE) << response.group().cause().ShortDebugString();
  EXPECT_EQ(response.group().generation(), 1);
  for (const v1::Member& member : response.group().members()) {
    EXPECT_NE(member.state(), v1::MEMBER_STATE_LOST) << member.name();
  }

  // A member that becomes silent now is still found.
  members[1].reset();
  EXPECT_TRUE(testing::Eventually([&] {
    v1::GetGroupResponse later;
    return members[0]->stubs().groups->GetGroup(testing::Context().get(), request, &later).ok() &&
           later.group().state() == v1::GROUP_STATE_BROKEN &&
           later.group().cause().member() == "rank-1";
  }));
}

// Clocks that differ since a stop would take a slow client for a silent one ever after.
TEST(CoordinatorStopped, WatchersHaveTheirWholeTimeLater) {
  constexpr absl::Duration kPingTimeout = absl::Seconds(2);
  CoordinatorProcess coordinator({"coordinator/cohort-coordinator",
                                  0,
                                  {"--ping-timeout", absl::FormatDuration(kPingTimeout)}});
  ASSERT_TRUE(coordinator.Start().ok());
  const Stubs stubs(coordinator.address());
  v1::CreateGroupRequest group;
  group.mutable_scope()->set_group("group");
  group.mutable_spec()->set_min_members(2);
  group.mutable_spec()->set_max_members(2);
  v1::CreateGroupResponse created;
  const grpc::Status status = stubs.groups->CreateGroup(testing::Context().get(), group, &created);
  ASSERT_TRUE(status.ok()) << status.error_message();
  framed_rpc::TestClient watcher(coordinator.address());
  watcher.Greet();
  v1::WatchGroupRequest watch;
  watch.mutable_scope()->set_group("group");
  watcher.Call(1, "cohort.v1.GroupService/WatchGroup", watch);
  coordinator.Pause();
  ASSERT_TRUE(Passes(kStopped));
  coordinator.Resume();
  for (int part = 0; part < 3; ++part) {
    const std::optional<framed_rpc::TestReply> got = watcher.Next();
    ASSERT_TRUE(got.has_value()) << "the connection was closed before part " << part;
    ASSERT_EQ(got->header.kind, framed_rpc::Kind::kPart) << got->text();
    ASSERT_TRUE(Passes(kPingTimeout / 2));
    watcher.Send(watcher.Frame(framed_rpc::Kind::kNext, 1, "", ""));
  }
}

}  // namespace
}  // namespace cohort
