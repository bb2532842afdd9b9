// One file, though long: all tests ask one server by gRPC, as the replicas of torchft do.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/notification.h"
#include "base/threads/thread_time.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/journal/journal.h"
#include "coordinator/journal/sqlite_journal.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "coordinator/service/torchft/lighthouse.h"
#include "coordinator/service/torchft/quorum_decision.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "torchft/lighthouse.grpc.pb.h"

namespace cohort::coordinator::torchft {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Answer {
  grpc::Status status;
  wire::Quorum quorum;
  std::vector<std::string> Members() const {
    std::vector<std::string> members;
    for (const auto& member : quorum.participants()) members.push_back(member.replica_id());
    return members;
  }
};

wire::QuorumMember Replica(const std::string& id) {
  wire::QuorumMember member;
  member.set_replica_id(id);
  return member;
}

// A call of Quorum on a thread of its own.
class Asking {
 public:
  Asking(const std::shared_ptr<grpc::Channel>& channel, wire::QuorumMember member,
         absl::Duration timeout = kTimeout)
      : context_(std::make_unique<grpc::ClientContext>()) {
    context_->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    answer_ = std::async(std::launch::async, [this, channel, member = std::move(member)] {
      wire::LighthouseQuorumRequest request;
      *request.mutable_requester() = member;
      wire::LighthouseQuorumResponse response;
      Answer answer;
      answer.status =
          wire::LighthouseService::NewStub(channel)->Quorum(context_.get(), request, &response);
      answer.quorum = response.quorum();
      return answer;
    });
  }
  Answer Get() { return answer_.get(); }
  bool IsAnswered(absl::Duration within) {
    return answer_.wait_for(absl::ToChronoMilliseconds(within)) == std::future_status::ready;
  }
  void Cancel() { context_->TryCancel(); }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::future<Answer> answer_;
};

class LighthouseServiceTest : public RpcServerTestBase {
 protected:
  LighthouseServiceTest() {
    server_options_.torchft.min_replicas = 2;
    server_options_.listen = {"127.0.0.1:0", "127.0.0.1:0"};
  }

  grpc::Status Heartbeat(const std::string& replica) {
    grpc::ClientContext context;
    wire::LighthouseHeartbeatRequest request;
    request.set_replica_id(replica);
    wire::LighthouseHeartbeatResponse response;
    return wire::LighthouseService::NewStub(channel_)->Heartbeat(&context, request, &response);
  }

  // A quorum of the replicas, which all ask at once.
  Answer Form(const std::vector<wire::QuorumMember>& members) {
    std::vector<std::unique_ptr<Asking>> calls;
    for (const auto& member : members) {
      calls.push_back(std::make_unique<Asking>(channel_, member));
    }
    Answer first = calls[0]->Get();
    EXPECT_TRUE(first.status.ok()) << first.status.error_message();
    for (size_t i = 1; i < calls.size(); ++i) {
      const Answer other = calls[i]->Get();
      EXPECT_EQ(other.quorum.SerializeAsString(), first.quorum.SerializeAsString());
    }
    return first;
  }

  std::string TenantOf(size_t address) const {
    const std::string& text = server_->addresses()[address];
    return TenantOfPort(std::stoi(text.substr(text.rfind(':') + 1)));
  }
  // The number of calls that wait; `started` calls have come.
  void AwaitWaiting(int64_t waiting, int64_t started) {
    ASSERT_TRUE(AwaitParked(waiting, started));
  }
};

TEST_F(LighthouseServiceTest, AllMembersGetTheSameQuorum) {
  wire::QuorumMember a = Replica("a");
  a.set_address("http://host-a:1");
  a.set_store_address("host-a:2");
  a.set_step(7);
  a.set_world_size(8);
  a.set_data("{\"n\": 1}");
  const absl::Time before = absl::Now();
  const Answer answer = Form({a, Replica("b")});
  EXPECT_THAT(answer.Members(), ElementsAre("a", "b"));
  EXPECT_EQ(answer.quorum.participants(0).SerializeAsString(), a.SerializeAsString());
  EXPECT_GE(answer.quorum.quorum_id(), absl::ToUnixMillis(before - absl::Minutes(1)));
  EXPECT_GE(answer.quorum.created().seconds(), absl::ToUnixSeconds(before));
  EXPECT_LE(answer.quorum.created().seconds(), absl::ToUnixSeconds(absl::Now()));
}

TEST_F(LighthouseServiceTest, TheIdGrowsWithAnotherMemberOrAFailedCommit) {
  const int64_t first = Form({Replica("a"), Replica("b")}).quorum.quorum_id();
  EXPECT_EQ(Form({Replica("a"), Replica("b")}).quorum.quorum_id(), first);
  wire::QuorumMember failed = Replica("a");
  failed.set_commit_failures(1);
  EXPECT_EQ(Form({failed, Replica("b")}).quorum.quorum_id(), first + 1);
  EXPECT_EQ(Form({Replica("a"), Replica("b")}).quorum.quorum_id(), first + 1);
  Asking c(channel_, Replica("c"));
  AwaitWaiting(1, 9);
  const Answer three = Form({Replica("a"), Replica("b")});
  EXPECT_EQ(three.quorum.quorum_id(), first + 2);
  EXPECT_THAT(three.Members(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(c.Get().quorum.SerializeAsString(), three.quorum.SerializeAsString());
}

TEST_F(LighthouseServiceTest, TheDeadlineNamesTheMissingReplica) {
  ASSERT_TRUE(Heartbeat("b").ok());
  const Answer answer = Asking(channel_, Replica("a"), absl::Seconds(2)).Get();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(answer.status.error_message(),
              AllOf(HasSubstr("torchft quorum at port "), HasSubstr(": replica a waited "),
                    HasSubstr("1 replica of at least 2 (min_replicas) asked for a quorum; missing: "
                              "b (its last heartbeat came ")));
  // The quorum does not count the call that has ended.
  Asking b(channel_, Replica("b"));
  AwaitWaiting(1, 3);
  EXPECT_THAT(Form({Replica("a")}).Members(), ElementsAre("a", "b"));
  EXPECT_TRUE(b.Get().status.ok());
}

TEST_F(LighthouseServiceTest, ACancelledCallLeavesTheQuorum) {
  Asking a(channel_, Replica("a"));
  AwaitWaiting(1, 1);
  a.Cancel();
  EXPECT_EQ(a.Get().status.error_code(), grpc::StatusCode::CANCELLED);
  const absl::Time end = absl::Now() + kTimeout;
  while (engine_->Stats().total.waiter_count > 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(engine_->Stats().total.waiter_count, 0);
  EXPECT_THAT(Form({Replica("a"), Replica("b")}).Members(), ElementsAre("a", "b"));
}

TEST_F(LighthouseServiceTest, ASecondCallOfAReplicaReplacesTheFirst) {
  Asking first(channel_, Replica("a"));
  AwaitWaiting(1, 1);
  Asking second(channel_, Replica("a"));
  const Answer replaced = first.Get();
  EXPECT_EQ(replaced.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(replaced.status.error_message(), HasSubstr("replica a has called again"));
  EXPECT_THAT(Form({Replica("b")}).Members(), ElementsAre("a", "b"));
  EXPECT_TRUE(second.Get().status.ok());
}

TEST_F(LighthouseServiceTest, PortsAreJobs) {
  auto other = grpc::CreateChannel(server_->addresses()[1], grpc::InsecureChannelCredentials());
  Asking stranger(other, Replica("stranger"));
  AwaitWaiting(1, 1);
  EXPECT_THAT(Form({Replica("a"), Replica("b")}).Members(), ElementsAre("a", "b"));
  Asking second(other, Replica("second"));
  EXPECT_THAT(stranger.Get().Members(), ElementsAre("second", "stranger"));
  EXPECT_THAT(second.Get().Members(), ElementsAre("second", "stranger"));
}

TEST_F(LighthouseServiceTest, TheStoreSaysWhoWaitsAndWhoIsMissing) {
  Asking a(channel_, Replica("a"));
  grpc::ClientContext get_context;
  v1::GetRequest get;
  get.mutable_scope()->set_tenant(TenantOf(0));
  get.add_keys(kMissingKey);
  get.mutable_wait()->set_seconds(absl::ToInt64Seconds(kTimeout));
  v1::GetResponse got;
  ASSERT_TRUE(v1::StoreService::NewStub(channel_)->Get(&get_context, get, &got).ok());
  ASSERT_EQ(got.values_size(), 1);
  EXPECT_THAT(got.values(0).value(), HasSubstr("1 replica of at least 2 (min_replicas) asked"));

  grpc::ClientContext dump_context;
  v1::DumpWaitsRequest dump;
  dump.mutable_scope()->set_tenant(TenantOf(0));
  v1::DumpWaitsResponse waits;
  ASSERT_TRUE(v1::AdminService::NewStub(channel_)->DumpWaits(&dump_context, dump, &waits).ok());
  EXPECT_THAT(waits.ShortDebugString(), HasSubstr("torchft replica a"));

  EXPECT_THAT(Form({Replica("b")}).Members(), ElementsAre("a", "b"));
  EXPECT_TRUE(a.Get().status.ok());
  get.clear_wait();
  grpc::ClientContext again;
  ASSERT_TRUE(v1::StoreService::NewStub(channel_)->Get(&again, get, &got).ok());
  EXPECT_EQ(got.values_size(), 0);
}

// A quorum whose id cannot be counted is refused, and is no hindrance to the next.
TEST_F(LighthouseServiceTest, AQuorumFollowsOneThatWasRefused) {
  const auto store = v1::StoreService::NewStub(channel_);
  grpc::ClientContext put_context;
  v1::PutRequest put;
  put.mutable_scope()->set_tenant(TenantOf(0));
  put.set_key(kQuorumIdKey);
  put.set_value("no number");
  v1::PutResponse put_response;
  ASSERT_TRUE(store->Put(&put_context, put, &put_response).ok());
  Asking a(channel_, Replica("a"));
  Asking b(channel_, Replica("b"));
  for (Asking* const asking : {&a, &b}) {
    const grpc::Status refused = asking->Get().status;
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(refused.error_message(), HasSubstr(kQuorumIdKey));
  }
  grpc::ClientContext delete_context;
  v1::DeleteRequest request;
  request.mutable_scope()->set_tenant(TenantOf(0));
  request.set_key(kQuorumIdKey);
  v1::DeleteResponse deleted;
  ASSERT_TRUE(store->Delete(&delete_context, request, &deleted).ok());
  EXPECT_THAT(Form({Replica("a"), Replica("b")}).Members(), ElementsAre("a", "b"));
}

TEST_F(LighthouseServiceTest, BadRequestsAreRefused) {
  const std::vector<std::pair<wire::QuorumMember, std::string>> cases = [] {
    std::vector<std::pair<wire::QuorumMember, std::string>> rows;
    rows.emplace_back(Replica(""), "requester.replica_id");
    rows.emplace_back(Replica(std::string(1025, 'a')), "requester.replica_id");
    rows.emplace_back(Replica("a"), "requester.address");
    rows.back().first.set_address(std::string(1025, 'a'));
    rows.emplace_back(Replica("a"), "requester.store_address");
    rows.back().first.set_store_address(std::string(1025, 'a'));
    rows.emplace_back(Replica("a"), "max_value_bytes");
    rows.back().first.set_data(std::string((1 << 20) + 1, 'a'));
    return rows;
  }();
  for (const auto& [member, text] : cases) {
    const Answer answer = Asking(channel_, member).Get();
    EXPECT_FALSE(answer.status.ok());
    EXPECT_THAT(answer.status.error_message(), HasSubstr(text));
  }
  EXPECT_EQ(Heartbeat("").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(LighthouseServiceTest, AnAnswerHasABound) {
  wire::QuorumMember big = Replica("a0");
  big.set_data(std::string(1 << 20, 'a'));
  std::vector<std::unique_ptr<Asking>> calls;
  // Without them, the first two would be a quorum.
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(Heartbeat(absl::StrCat("alive", i)).ok());
  for (int i = 0; i < 3; ++i) {
    big.set_replica_id(absl::StrCat("a", i));
    calls.push_back(std::make_unique<Asking>(channel_, big));
    AwaitWaiting(i + 1, 9 + i + 1);
  }
  big.set_replica_id("a3");
  const Answer answer = Asking(channel_, big).Get();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.status.error_message(),
              AllOf(HasSubstr("replica a3"), HasSubstr("over --max-message-bytes (4194304)")));
  for (const auto& call : calls) call->Cancel();
}

TEST_F(LighthouseServiceTest, AFinishedQuorumGivesItsBytesBack) {
  wire::QuorumMember a = Replica("a"), b = Replica("b");
  a.set_data(std::string(1 << 20, 'a'));
  b.set_data(std::string(1 << 20, 'b'));
  for (int i = 0; i < 4; ++i) Form({a, b});  // twice --max-message-bytes in all
}

TEST_F(LighthouseServiceTest, TooManyReplicasAreRefused) {
  Limits limits = engine_->limits();
  limits.max_members = 2;
  engine_->SetLimits(limits);
  EXPECT_TRUE(Heartbeat("a").ok());
  EXPECT_TRUE(Heartbeat("b").ok());
  EXPECT_TRUE(Heartbeat("a").ok());
  const grpc::Status refused = Heartbeat("c");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("max_members (2)"));
}

TEST_F(LighthouseServiceTest, ShutdownEndsWaitingCalls) {
  Asking a(channel_, Replica("a"));
  AwaitWaiting(1, 1);
  server_->Shutdown(absl::Seconds(5));
  EXPECT_EQ(a.Get().status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A call that waits, without gRPC.
class WaitingCall final : public QuorumCall {
 public:
  void OnReply(Reply&&, DeliveryContext&) override {}
  void End(const absl::StatusOr<grpc::ByteBuffer>& answer) override {
    status = answer.status();
    has_ended.Notify();
  }

  absl::Status status;  // valid once it has ended
  Notification has_ended;
};

// Does not write before it may.
class HeldJournal final : public Journal {
 public:
  explicit HeldJournal(Notification& may_write) : may_write_(may_write) {}

  using Journal::Open;
  absl::StatusOr<int64_t> Open(const RowSink&) override { return 1; }
  absl::Status Append(const std::vector<Record>&) override {
    return may_write_.WaitWithTimeout(kTimeout) ? absl::OkStatus()
                                                : absl::DeadlineExceededError("held for too long");
  }
  bool keeps_nothing() const override { return false; }
  const char* name() const override { return "held"; }

 private:
  Notification& may_write_;
};

class HeldJournalTest : public LighthouseServiceTest {
 protected:
  void SetUp() override {
    engine_ =
        Engine::Start(EngineOptions(), std::make_unique<HeldJournal>(may_write_), Clock::Steady())
            .value();
    dispatcher_ = std::make_unique<Dispatcher>(DispatcherOptions(), *engine_, &observer_);
  }

  Notification may_write_;
};

// Replicas c, d and e ask while the journal writes the id of the quorum of a and b.
TEST_F(HeldJournalTest, ReplicasThatAskDuringTheWriteOfAnIdGetTheNextQuorum) {
  QuorumOptions options;
  options.min_replicas = 2;
  options.heartbeat_timeout = absl::Hours(1);
  options.join_timeout = absl::ZeroDuration();
  Lighthouse lighthouse(1, options, *dispatcher_, [](Instant) {});
  WaitingCall calls[5];
  const char* const replicas[] = {"a", "b", "c", "d", "e"};
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(lighthouse.Enter(&calls[i], Replica(replicas[i]), nullptr, absl::Hours(1)).ok());
  }
  EXPECT_EQ(engine_->Stats().total.waiter_count, 5);
  may_write_.Notify();
  for (WaitingCall& call : calls) {
    ASSERT_TRUE(call.has_ended.WaitWithTimeout(kTimeout)) << call.replica();
    EXPECT_TRUE(call.status.ok()) << call.status;
  }
  EXPECT_TRUE(dispatcher_->AwaitIdle(kTimeout));
}

// The processor time of the first heartbeats of `count` replicas, while one waits for a quorum.
absl::Duration TimeOfFirstHeartbeats(Dispatcher& dispatcher, int count) {
  QuorumOptions options;
  options.min_replicas = 2;
  options.heartbeat_timeout = absl::Hours(1);
  Lighthouse lighthouse(1, options, dispatcher, [](Instant) {});
  WaitingCall call;
  EXPECT_TRUE(lighthouse.Enter(&call, Replica("asks"), nullptr, absl::Hours(1)).ok());
  const absl::Duration begin = ThreadTime();
  for (int i = 0; i < count; ++i) {
    EXPECT_TRUE(lighthouse.Heartbeat(absl::StrCat("replica", i), nullptr).ok());
  }
  const absl::Duration time = ThreadTime() - begin;
  EXPECT_TRUE(dispatcher.engine().Cancel(call.handle()));
  lighthouse.Leave(&call, absl::CancelledError("")).IgnoreError();
  return time;
}

// Checks how the time grows, not its length.
TEST_F(LighthouseServiceTest, TimeGrowsWithTheNewReplicasAndNotTheirSquare) {
  constexpr int kFew = 1000;
  constexpr int kMany = 4 * kFew;
  absl::Duration few = absl::InfiniteDuration();
  absl::Duration many = absl::InfiniteDuration();
  for (int attempt = 0; attempt < 3; ++attempt) {
    few = std::min(few, TimeOfFirstHeartbeats(*dispatcher_, kFew));
    many = std::min(many, TimeOfFirstHeartbeats(*dispatcher_, kMany));
  }
  EXPECT_LT(absl::FDivDuration(many, few), 8) << few << " and " << many;
}

class ShortTimeoutsTest : public LighthouseServiceTest {
 protected:
  ShortTimeoutsTest() {
    server_options_.torchft.min_replicas = 1;
    server_options_.torchft.heartbeat_timeout = absl::Seconds(2);
  }
};

TEST_F(ShortTimeoutsTest, TheDeathOfAReplicaCompletesAQuorum) {
  ASSERT_TRUE(Heartbeat("dead").ok());
  Asking a(channel_, Replica("a"));
  AwaitWaiting(1, 2);
  // It lives on while the heartbeat of the dead one grows old.
  do {
    ASSERT_TRUE(Heartbeat("a").ok());
  } while (!a.IsAnswered(absl::Milliseconds(50)));
  EXPECT_THAT(a.Get().Members(), ElementsAre("a"));
}

class JoinTimeoutTest : public LighthouseServiceTest {
 protected:
  JoinTimeoutTest() { server_options_.torchft.join_timeout = absl::Milliseconds(300); }
};

TEST_F(JoinTimeoutTest, AQuorumForWhichAReplicaDoesNotAskWaitsForTheTimeout) {
  ASSERT_TRUE(Heartbeat("late").ok());
  const absl::Time before = absl::Now();
  EXPECT_THAT(Form({Replica("a"), Replica("b")}).Members(), ElementsAre("a", "b"));
  EXPECT_GE(absl::Now() - before, absl::Milliseconds(290));
}

class LongJoinTimeoutTest : public LighthouseServiceTest {
 protected:
  LongJoinTimeoutTest() { server_options_.torchft.join_timeout = absl::Seconds(3); }
};

// Replicas that a quorum left out wait for further replicas as long as if they had just asked.
TEST_F(LongJoinTimeoutTest, AReplicaThatWasLeftOutGivesTheNextQuorumItsTimeout) {
  Form({Replica("a"), Replica("b")});
  Asking c(channel_, Replica("c"));
  Asking d(channel_, Replica("d"));
  AwaitWaiting(2, 4);
  ASSERT_FALSE(c.IsAnswered(absl::Seconds(1))) << "two of four are not the majority";
  Asking b(channel_, Replica("b"));
  AwaitWaiting(3, 5);
  wire::QuorumMember a = Replica("a");
  a.set_shrink_only(true);
  const absl::Time before = absl::Now();
  ASSERT_THAT(Form({a}).Members(), ElementsAre("a", "b"));
  EXPECT_THAT(Form({Replica("e")}).Members(), ElementsAre("c", "d", "e"));
  EXPECT_GE(absl::Now() - before, absl::Milliseconds(2990));
  EXPECT_TRUE(b.Get().status.ok());
  EXPECT_TRUE(c.Get().status.ok());
  EXPECT_TRUE(d.Get().status.ok());
}

// Starts the coordinator again with the same journal.
class RestartTest : public LighthouseServiceTest {
 protected:
  void SetUp() override { Start(); }
  void Start() {
    engine_ =
        Engine::Start(EngineOptions(), std::make_unique<SqliteJournal>(path_), Clock::Steady())
            .value();
    dispatcher_ = std::make_unique<Dispatcher>(DispatcherOptions(), *engine_, &observer_);
    server_ = RpcServer::Start(server_options_, *dispatcher_).value();
    channel_ = NewChannel();
  }
  void Restart() {
    server_options_.listen = {server_->addresses()[0]};  // the port names the job
    server_.reset();
    dispatcher_.reset();
    engine_.reset();
    Start();
  }

  const std::string path_ = absl::StrCat(
      testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RestartTest, TheIdGrowsEvenIfTheClockHasGoneBack) {
  // An id of a coordinator whose clock was ahead.
  constexpr int64_t kAhead = int64_t{1} << 60;
  grpc::ClientContext context;
  v1::AddRequest add;
  add.mutable_scope()->set_tenant(TenantOf(0));
  add.set_key(kQuorumIdKey);
  add.set_delta(kAhead);
  v1::AddResponse added;
  ASSERT_TRUE(v1::StoreService::NewStub(channel_)->Add(&context, add, &added).ok());
  EXPECT_EQ(Form({Replica("a"), Replica("b")}).quorum.quorum_id(), kAhead + 1);
  Restart();
  EXPECT_EQ(Form({Replica("a"), Replica("b")}).quorum.quorum_id(), kAhead + 2);
}

class AloneAfterRestartTest : public RestartTest {
 protected:
  AloneAfterRestartTest() {
    server_options_.torchft.min_replicas = 1;
    server_options_.torchft.heartbeat_timeout = absl::Hours(1);
  }
};

// The coordinator does not know which other replicas are alive.
TEST_F(AloneAfterRestartTest, AReplicaGetsAQuorumAfterTheHeartbeatTimeout) {
  EXPECT_THAT(Form({Replica("a")}).Members(), ElementsAre("a"));
  Restart();
  const Answer early = Asking(channel_, Replica("a"), absl::Seconds(2)).Get();
  EXPECT_EQ(early.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(early.status.error_message(),
              HasSubstr("the coordinator has started again, and waits 1h (heartbeat_timeout)"));
  server_options_.torchft.heartbeat_timeout = absl::Seconds(2);
  Restart();
  Asking a(channel_, Replica("a"));
  do {
    ASSERT_TRUE(Heartbeat("a").ok());
  } while (!a.IsAnswered(absl::Milliseconds(50)));
  EXPECT_THAT(a.Get().Members(), ElementsAre("a"));
}

class SwitchedOffTest : public LighthouseServiceTest {
 protected:
  SwitchedOffTest() { server_options_.torchft.min_replicas = 0; }
};

TEST_F(SwitchedOffTest, TheServiceIsNotThere) {
  EXPECT_EQ(Heartbeat("a").error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace cohort::coordinator::torchft
