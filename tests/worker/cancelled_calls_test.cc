// A caller cancels its join, its rejoin or its call on an object. The call ends at once, the daemon
// does not go on with it, and the group stays usable. An answer that the daemon keeps for
// the caller's next call is of one generation.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/cancellation.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using testing::Eventually;
using ::testing::StartsWith;
using testing::Transport;
using testing::WorkerTest;

void ExpectReason(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), StartsWith("a signal came"));
}

class CancelledCallsTest : public WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    StartWorker();
    client::ConnectionOptions options;
    options.address = coordinator_.address();
    absl::StatusOr<std::shared_ptr<client::Connection>> connection =
        client::Connection::Create(options);
    ASSERT_TRUE(connection.ok()) << connection.status();
    admin_ = client::AdminClient::Create(*std::move(connection));
  }

  // Runs `call`, and cancels it once `waits()`.
  template <typename Call, typename Waits>
  static auto Cancelled(const Call& call, const Waits& waits) {
    client::Cancellation cancellation;
    std::thread canceller([&] {
      EXPECT_TRUE(Eventually(waits));
      cancellation.Cancel(absl::CancelledError("a signal came"));
    });
    const client::CancellationScope scope(cancellation);
    auto result = call();
    canceller.join();
    return result;
  }

  int Members(const std::string& group) const {
    const absl::StatusOr<client::GroupInfo> info = admin_->GetGroup(group);
    return info.ok() ? static_cast<int>(info->members.size()) : 0;
  }
  // Whether a call of the group waits at the coordinator.
  bool Waits(const std::string& group) const {
    const auto waits = admin_->DumpWaits(group);
    return waits.ok() && !waits->empty();
  }

  std::unique_ptr<client::AdminClient> admin_;
};

TEST_F(CancelledCallsTest, AJoinLeavesNoMember) {
  for (const Transport transport : {Transport::kUnix, Transport::kRemoteTcp}) {
    const auto session = Connect(0, transport);
    const absl::Status status = Cancelled(
        [&] { return client::RemoteGroup::Create(GroupOptionsOf(session, "joins", 0, 2)).status(); },
        [&] { return Waits("joins"); });
    ExpectReason(status);
    EXPECT_TRUE(Eventually([&] { return Members("joins") == 0; }));
    EXPECT_TRUE(Eventually([&] { return Describe(0).ranks_size() == 0; }));
    // The session is as good as before.
    EXPECT_TRUE(client::RemoteGroup::Create(GroupOptionsOf(session, "alone", 0, 1)).ok());
  }
}

TEST_F(CancelledCallsTest, AReceiveTakesNoObject) {
  const Groups groups =
      JoinAll({Connect(0, Transport::kUnix), Connect(0, Transport::kTcp)}, "objects");
  const absl::StatusOr<std::string> none = Cancelled(
      [&] { return groups[0]->ReceiveObject(1); }, [&] { return Waits("objects"); });
  ExpectReason(none.status());
  EXPECT_TRUE(Eventually([&] { return !Waits("objects"); }));
  ASSERT_TRUE(groups[1]->SendObject("weights", 0).ok());
  const absl::StatusOr<std::string> next = groups[0]->ReceiveObject(1);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(*next, "weights");
}

// The daemon may hear of the next call before it hears of the cancellation, and another rank may
// complete the round meanwhile.
TEST_F(CancelledCallsTest, ARoundIsTakenUpByTheNextCall) {
  const Groups groups =
      JoinAll({Connect(0, Transport::kUnix), Connect(0, Transport::kTcp)}, "rounds");
  for (int i = 0; i < 100; ++i) {
    const auto gather = [i](client::Group& group) {
      return group.AllGatherObjects(absl::StrCat("of ", group.rank(), " in ", i));
    };
    const auto none = Cancelled([&] { return gather(*groups[0]); }, [&] { return Waits("rounds"); });
    ExpectReason(none.status());
    const std::vector<std::string> expected = {absl::StrCat("of 0 in ", i),
                                               absl::StrCat("of 1 in ", i)};
    ExpectOk(OnRanks(groups, [&](client::Group& group) {
      const absl::StatusOr<std::vector<std::string>> objects = gather(group);
      EXPECT_EQ(objects.value_or(std::vector<std::string>()), expected);
      return objects.status();
    }));
    ASSERT_FALSE(HasFailure()) << i;
  }
}

// The daemon keeps the last answer for a caller that has cancelled; the next generation gets none.
TEST_F(CancelledCallsTest, AKeptAnswerEndsWithItsGeneration) {
  const Groups groups =
      JoinAll({Connect(0, Transport::kUnix), Connect(0, Transport::kTcp)}, "generations");
  for (const std::string generation : {"first", "second"}) {
    ExpectOk(OnRanks(groups, [&](client::Group& group) {
      const auto objects = group.AllGatherObjects(group.rank() == 0 ? "same" : generation);
      EXPECT_EQ(objects.value_or(std::vector<std::string>()),
                (std::vector<std::string>{"same", generation}));
      return objects.status();
    }));
    ASSERT_TRUE(groups[1]->SendObject(generation, 0).ok());
    EXPECT_EQ(groups[0]->ReceiveObject(1).value_or("nothing"), generation);
    groups[0]->Abort(absl::AbortedError("the test says so"));
    ExpectOk(OnRanks(groups, [](client::Group& group) { return group.Rejoin(testing::kTimeout); }));
  }
}

TEST_F(CancelledCallsTest, ARejoinEndsAndMayBeTriedAgain) {
  const Groups groups =
      JoinAll({Connect(0, Transport::kUnix), Connect(0, Transport::kTcp)}, "again");
  groups[0]->Abort(absl::AbortedError("the test says so"));
  const absl::Status status = Cancelled([&] { return groups[0]->Rejoin(testing::kTimeout); },
                                        [&] { return Waits("again"); });
  ExpectReason(status);
  ExpectOk(OnRanks(groups, [](client::Group& group) { return group.Rejoin(testing::kTimeout); }));
  ExpectOk(OnRanks(groups, [](client::Group& group) { return group.Barrier(); }));
}

}  // namespace
}  // namespace cohort
