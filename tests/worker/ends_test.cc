// Clients and workers are killed, or asked to end. The other ranks get an error at once that names
// the one that ended, and nothing of it stays. One file, though long: all tests end one process, on
// the same workers.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/rpc/client_tls.h"
#include "client/collective/remote/worker_client.h"
#include "client/rendezvous/admin_client.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using ::testing::StartsWith;
using testing::Transport;
using testing::WorkerTest;

constexpr Reduction kMax = {ReduceOp::kMax};

class EndsTest : public WorkerTest {
 protected:
  std::unique_ptr<ChildProcess> StartClient(int worker, Transport transport, int rank,
                                            int size) const {
    return std::make_unique<ChildProcess>(
        std::vector<std::string>{"tests/worker/client_main", AddressOf(worker, transport), "group",
                                 absl::StrCat(rank), absl::StrCat(size)});
  }
  // Returns the encoded answer of the standard health service.
  std::string Health(int index) const {
    const std::string address = AddressOf(index, Transport::kTcp);
    const auto tls = ClientTlsOfEnvironment(address);
    EXPECT_TRUE(tls.ok()) << tls.status();
    const std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel(address, tls->grpc);
    const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                           grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::Slice nothing("");
    request = grpc::ByteBuffer(&nothing, 1);
    grpc::ByteBuffer response;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel.get(), method, &context, request, &response);
    grpc::Slice answer;
    if (!status.ok() || !response.TrySingleSlice(&answer).ok()) return status.error_message();
    return std::string(reinterpret_cast<const char*>(answer.begin()), answer.size());
  }
  static std::string Line(ChildProcess& client) {
    const absl::StatusOr<std::string> line = client.ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << line.status() << "\n" << client.ErrorText();
    return line.value_or("nothing");
  }
};

TEST_F(EndsTest, AKilledClientIsNamedToTheOthersWithinASecond) {
  for (const Transport transport : {Transport::kUnix, Transport::kTcp}) {
    SCOPED_TRACE(static_cast<int>(transport));
    StartWorker();
    StartWorker();
    const int base = transport == Transport::kUnix ? 0 : 2;
    // The third client shares the second one's worker.
    std::unique_ptr<ChildProcess> clients[] = {StartClient(base, transport, 0, 3),
                                               StartClient(base + 1, transport, 1, 3),
                                               StartClient(base + 1, transport, 2, 3)};
    for (const auto& client : clients) EXPECT_THAT(Line(*client), StartsWith("joined"));
    for (const auto& client : clients) EXPECT_EQ(Line(*client), "running");
    const pid_t victim = clients[2]->pid();
    const Instant killed = Clock::Steady().Now();
    clients[2]->Kill();
    for (const int other : {0, 1}) {
      const std::string line = Line(*clients[other]);
      EXPECT_THAT(line, StartsWith("ABORTED "));
      EXPECT_THAT(line, HasSubstr("rank 2 "));
      EXPECT_THAT(line, HasSubstr(absl::StrCat("client (trainer, process ", victim, " on ")));
    }
    const absl::Duration took = Clock::Steady().Now() - killed;
    EXPECT_LT(took, absl::Seconds(1));
    std::cout << "kill -9 of a client to the last of the others told: " << took << std::endl;
    EXPECT_TRUE(testing::Eventually([&] { return Describe(base + 1).session_count() == 1; },
                                    absl::Seconds(10)));
    for (const auto& client : clients) client->Kill();
    EXPECT_TRUE(AwaitEmpty(base));
    EXPECT_TRUE(AwaitEmpty(base + 1));
  }
}

TEST_F(EndsTest, AKilledClientIsNamedToOtherHostsWithinASecond) {
  for (const char* const host : {"a", "b", "b"}) StartWorker({"--host-identity", host});
  std::unique_ptr<ChildProcess> clients[3];
  for (int rank = 0; rank < 3; ++rank) clients[rank] = StartClient(rank, Transport::kTcp, rank, 3);
  for (const auto& client : clients) EXPECT_THAT(Line(*client), StartsWith("joined"));
  for (const auto& client : clients) EXPECT_EQ(Line(*client), "running");
  EXPECT_THAT(Describe(0).ranks(0).paths(1),
              StartsWith(std::getenv("COHORT_TLS_CA") == nullptr ? "tcp " : "tls "));
  const pid_t victim = clients[1]->pid();
  const Instant killed = Clock::Steady().Now();
  clients[1]->Kill();
  for (const int other : {0, 2}) {
    const std::string line = Line(*clients[other]);
    EXPECT_THAT(line, StartsWith("ABORTED "));
    EXPECT_THAT(line, HasSubstr("rank 1 "));
    EXPECT_THAT(line, HasSubstr(absl::StrCat("client (trainer, process ", victim, " on ")));
  }
  const absl::Duration took = Clock::Steady().Now() - killed;
  EXPECT_LT(took, absl::Seconds(1));
  std::cout << "kill -9 of a client to the last of the others told: " << took << std::endl;
}

TEST_F(EndsTest, TheNextCallNamesARankThatLeft) {
  StartWorker();
  StartWorker();
  auto session = Connect(1, Transport::kTcp);
  Groups groups(1);
  std::unique_ptr<ChildProcess> victim = StartClient(0, Transport::kTcp, 0, 2);
  absl::StatusOr<std::unique_ptr<client::RemoteGroup>> group =
      client::RemoteGroup::Create(GroupOptionsOf(session, "group", 1, 2));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_THAT(Line(*victim), StartsWith("joined"));
  victim->Kill();
  // The worker reports that the generation has ended; the client need not ask.
  EXPECT_TRUE(testing::Eventually([&] { return !(*group)->Barrier({}).ok(); }));
  const absl::Status status = (*group)->Barrier({});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("client (trainer, process "));
}

// Many generations end at once, so that their events wait for each other.
TEST_F(EndsTest, EachEndIsAnEventOfTheSession) {
  constexpr int kGroups = 50;
  StartWorker();
  const auto stub = StubOf(0);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
  const auto stream = stub->OpenSession(&context, v1::OpenSessionRequest());
  v1::SessionEvent event;
  ASSERT_TRUE(stream->Read(&event));
  auto other = Connect(0, Transport::kTcp);
  Groups of_other;
  for (int i = 0; i < kGroups; ++i) {
    const std::string name = absl::StrCat("group-", i);
    auto peer = std::async(std::launch::async, [&] {
      return client::RemoteGroup::Create(GroupOptionsOf(other, name, 1, 2));
    });
    v1::JoinGroupRequest join;
    join.set_session(event.opened().session());
    join.set_group(name);
    join.set_rank(0);
    join.set_world_size(2);
    v1::JoinGroupResponse joined;
    grpc::ClientContext call;
    call.set_deadline(context.deadline());
    const grpc::Status status = stub->JoinGroup(&call, join, &joined);
    ASSERT_TRUE(status.ok()) << status.error_message();
    auto group = peer.get();
    ASSERT_TRUE(group.ok()) << group.status();
    of_other.push_back(*std::move(group));
  }
  std::vector<std::thread> threads;
  for (const auto& group : of_other) {
    threads.emplace_back([&group] { group->Abort(absl::AbortedError("the test says so")); });
  }
  for (std::thread& thread : threads) thread.join();
  v1::SessionEvent end;
  for (int i = 0; i < kGroups; ++i) {
    ASSERT_TRUE(stream->Read(&end)) << i << " of " << kGroups;
    EXPECT_THAT(end.group_ended().cause(), HasSubstr("the test says so"));
  }
  context.TryCancel();
}

TEST_F(EndsTest, ALookForAMessageIsNoEnd) {
  StartWorker();
  const Groups groups =
      JoinAll({Connect(0, Transport::kTcp), Connect(0, Transport::kTcp)}, "looks");
  client::CallOptions options;
  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(groups[0]->AwaitMessage({1}, options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const v1::GetWorkerResponse worker = Describe(0);
  ASSERT_EQ(worker.ranks_size(), 2);
  for (const auto& rank : worker.ranks()) EXPECT_EQ(rank.ended(), "") << rank.rank();
  ExpectOk(OnRanks(groups, [](client::Group& group) { return group.Barrier(); }));
}

TEST_F(EndsTest, AKilledWorkerIsNamedToItsClientAndToTheOtherRanks) {
  StartWorker();
  StartWorker();
  for (const Transport transport : {Transport::kUnix, Transport::kRemoteTcp}) {
    auto lost = Connect(0, transport);
    auto other = Connect(1, transport);
    // A client of the Unix socket has another identity, which does not replace a member that is
    // thought to be alive.
    const Groups groups =
        JoinAll({lost, other}, absl::StrCat("group", static_cast<int>(transport)));
    ASSERT_NE(groups[0], nullptr);
    const pid_t pid = worker(0).pid();
    Instant killed;
    std::atomic<int> calls{0};
    const std::vector<absl::Status> statuses = OnRanks(groups, [&](client::Group& group) {
      absl::Status status;
      const Tensor own = Tensor::Zeros(DataType::kF32, {100000});
      while (status.ok()) {
        status = group.AllReduce(own, own, kMax);
        if (++calls == 20) {
          killed = Clock::Steady().Now();
          worker(0).Kill();
        }
      }
      EXPECT_LT(Clock::Steady().Now() - killed, absl::Seconds(1));
      return status;
    });
    EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
    EXPECT_THAT(std::string(statuses[0].message()),
                AllOf(HasSubstr(AddressOf(0, transport)), HasSubstr(absl::StrCat("process ", pid)),
                      HasSubstr("group")));
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kAborted) << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("rank 0"));
    // Later calls fail without asking another process.
    EXPECT_EQ(groups[0]->Barrier({}).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(groups[0]->Rejoin().code(), absl::StatusCode::kAborted);
    // The socket's path that the killed worker left does not keep the next worker from starting.
    ASSERT_TRUE(worker(0).Start().ok());
  }
}

TEST_F(EndsTest, RanksGoOnInTheNextGeneration) {
  StartWorker();
  StartWorker();
  auto keeper = Connect(0, Transport::kUnix);
  auto victim = Connect(1, Transport::kUnix);
  Groups groups = JoinAll({keeper, victim}, "group");
  absl::StatusOr<Tensor> kept = groups[0]->Allocate(DataType::kF32, {4});
  ASSERT_TRUE(kept.ok()) << kept.status();
  groups[1]->Abort(absl::InternalError("enough"));
  const absl::Status status = groups[0]->AllReduce(*kept, *kept, kMax, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 aborted: enough"));
  ExpectOk(OnRanks(groups, [](client::Group& group) {
    return static_cast<client::RemoteGroup&>(group).Rejoin();
  }));
  EXPECT_EQ(groups[0]->generation(), 2);
  static_cast<float*>(kept->data())[3] = 7;
  ExpectOk(OnRanks(groups, [&](client::Group& group) {
    const Tensor own = group.rank() == 0 ? *kept : Tensor::Zeros(DataType::kF32, {4});
    return group.AllReduce(own, own, kMax);
  }));
  EXPECT_EQ(static_cast<float*>(kept->data())[3], 7);
}

// The call holds the group: if it did not end, the rejoin would wait for the call's own timeout.
TEST_F(EndsTest, ARejoinEndsACallOfAnotherThread) {
  StartWorker();
  StartWorker();
  const Groups groups = JoinAll({Connect(0, Transport::kUnix), Connect(1, Transport::kUnix)},
                                "group", {Transport::kAttached, Transport::kAttached});
  absl::Status waits;
  std::thread caller([&] {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {4});
    waits = groups[0]->AllReduce(tensor, tensor, kMax);
  });
  const auto worker = client::WorkerClient::Create(AddressOf(0, Transport::kTcp), kTimeout);
  EXPECT_TRUE(testing::Eventually([&] {
    const auto records = worker->ReadFlightRecords("group");
    return records.ok() && !records->empty() && !records->front().calls.empty();
  }));
  std::thread other([&] { EXPECT_EQ(groups[1]->Rejoin(kTimeout), absl::OkStatus()); });
  EXPECT_EQ(groups[0]->Rejoin(kTimeout), absl::OkStatus());
  other.join();
  caller.join();
  EXPECT_EQ(waits.code(), absl::StatusCode::kAborted) << waits;
  EXPECT_THAT(std::string(waits.message()), HasSubstr("goes on in the next generation"));
}

TEST_F(EndsTest, AWorkerThatDoesNotAnswerIsNamed) {
  client::WorkerSessionOptions absent;
  // Short, as a socket's path must be.
  absent.address = absl::StrCat("unix:/tmp/cohort-absent-", getpid());
  absent.connect_timeout = absl::Milliseconds(300);
  const absl::Status unreachable = client::WorkerSession::Connect(absent).status();
  EXPECT_EQ(unreachable.code(), absl::StatusCode::kUnavailable) << unreachable;
  EXPECT_THAT(std::string(unreachable.message()), HasSubstr(absent.address));

  StartWorker();
  auto session = Connect(0, Transport::kTcp);
  auto other = Connect(0, Transport::kTcp);
  const Groups groups = JoinAll({session, other}, "group");
  worker(0).Pause();
  client::CallOptions soon;
  soon.timeout = absl::Milliseconds(100);
  const absl::Status silent = groups[0]->Barrier(soon);
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded) << silent;
  EXPECT_THAT(std::string(silent.message()),
              AllOf(HasSubstr(absl::StrCat("process ", worker(0).pid())), HasSubstr("group")));
  worker(0).Resume();
}

// The root of a broadcast and the sender of a message do not wait for the receivers. A rank that
// leaves waits until the others have its data.
TEST_F(EndsTest, ValuesSentBeforeLeavingArrive) {
  StartWorker();
  StartWorker();
  for (const Transport transport : {Transport::kTcp, Transport::kAttached}) {
    Groups groups =
        JoinAll({Connect(0, transport), Connect(1, transport)}, "group", {transport, transport});
    const Tensor given = Tensor::Zeros(DataType::kI32, {1});
    *static_cast<int32_t*>(given.data()) = 42;
    ASSERT_TRUE(groups[0]->Send(given, 1).ok());
    ASSERT_TRUE(groups[0]->Broadcast(given, 0).ok());
    auto left = std::async(std::launch::async, [&] { groups[0].reset(); });
    // Long enough for rank 1 to learn that rank 0 left, if it did.
    EXPECT_EQ(left.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    const Tensor sent = Tensor::Zeros(DataType::kI32, {1});
    const Tensor taken = Tensor::Zeros(DataType::kI32, {1});
    const absl::Status received = groups[1]->Receive(sent, 0);
    EXPECT_TRUE(received.ok()) << received;
    const absl::Status broadcast = groups[1]->Broadcast(taken, 0);
    EXPECT_TRUE(broadcast.ok()) << broadcast;
    EXPECT_EQ(*static_cast<int32_t*>(sent.data()), 42);
    EXPECT_EQ(*static_cast<int32_t*>(taken.data()), 42);
    left.get();
  }
}

TEST_F(EndsTest, AWorkerThatDrainsEndsParkedCallsAfterItsGraceAndSaysWhy) {
  StartWorker({"--drain-grace", "500ms"});
  StartWorker();
  auto session = Connect(0, Transport::kTcp);
  auto other = Connect(1, Transport::kTcp);
  const Groups groups = JoinAll({session, other}, "group");
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).call_count() == 0; }));
  auto parked = std::async(std::launch::async, [&] {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {8});
    return groups[0]->AllReduce(tensor, tensor, kMax, {});
  });
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).call_count() == 1; }));
  auto ended = std::async(std::launch::async, [&] { return worker(0).Terminate(kTimeout); });
  const absl::Status status = parked.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("its worker is draining"));
  const absl::StatusOr<int> code = ended.get();
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {8});
  const absl::Status told = groups[1]->AllReduce(tensor, tensor, kMax, {});
  EXPECT_EQ(told.code(), absl::StatusCode::kAborted) << told;
  EXPECT_THAT(std::string(told.message()),
              AllOf(HasSubstr("rank 0 "), HasSubstr("its worker is draining")));
  const absl::Status gone = groups[0]->Barrier({});
  EXPECT_EQ(gone.code(), absl::StatusCode::kAborted) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("its worker is draining"));
}

TEST_F(EndsTest, ADrainLetsCallsFinishAndRefusesSessions) {
  StartWorker({"--drain-grace", "60s"});
  StartWorker();
  auto session = Connect(0, Transport::kTcp);
  auto other = Connect(1, Transport::kTcp);
  const Groups groups = JoinAll({session, other}, "group");
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).call_count() == 0; }));
  auto parked = std::async(std::launch::async, [&] {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {8});
    return groups[0]->AllReduce(tensor, tensor, kMax, {});
  });
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).call_count() == 1; }));
  auto ended = std::async(std::launch::async, [&] { return worker(0).Terminate(kTimeout); });
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).draining(); }));
  client::WorkerSessionOptions options;
  options.address = AddressOf(0, Transport::kTcp);
  const absl::Status refused = client::WorkerSession::Connect(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("draining"));
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {8});
  const absl::Status finished = groups[1]->AllReduce(tensor, tensor, kMax, {});
  EXPECT_TRUE(finished.ok()) << finished;
  const absl::Status other_finished = parked.get();
  EXPECT_TRUE(other_finished.ok()) << other_finished;
  EXPECT_EQ(ended.get().value_or(-1), 0);
}

TEST_F(EndsTest, AClientThatIsKilledWhileItWaitsMayComeAgain) {
  StartWorker();
  std::unique_ptr<ChildProcess> first = StartClient(0, Transport::kUnix, 0, 2);
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).session_count() == 1; }));
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 1));
  first->Kill();
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).session_count() == 0; }));
  // If another rank completes the group with the killed client's rank, the generation ends at once.
  // So the test waits until the new client has the rank.
  const auto admin = client::AdminClient::Create(testing::Connect(coordinator_.address()));
  const auto incarnation = [&]() -> int64_t {
    const absl::StatusOr<client::GroupInfo> group = admin->GetGroup("group");
    return group.ok() && !group->members.empty() ? group->members[0].incarnation_hash : 0;
  };
  const int64_t gone = incarnation();
  std::unique_ptr<ChildProcess> again = StartClient(0, Transport::kUnix, 0, 2);
  ASSERT_TRUE(testing::Eventually([&] { return incarnation() != gone; }));
  std::unique_ptr<ChildProcess> other = StartClient(0, Transport::kUnix, 1, 2);
  EXPECT_THAT(Line(*again), StartsWith("joined"));
  EXPECT_THAT(Line(*other), StartsWith("joined"));
  EXPECT_EQ(Line(*again), "running");
  EXPECT_EQ(Line(*other), "running");
}

// The worker cancels a join in progress, and the client may ask another worker.
TEST_F(EndsTest, AWorkerDrainsWhileAClientWaitsForItsGroup) {
  StartWorker({"--drain-grace", "1h"});
  std::unique_ptr<ChildProcess> client = StartClient(0, Transport::kUnix, 0, 2);
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 1));
  const absl::StatusOr<int> code = worker(0).Terminate(kTimeout);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
  const std::string line = Line(*client);
  EXPECT_THAT(line, StartsWith("failed UNAVAILABLE"));
  EXPECT_THAT(line, HasSubstr("rank 0 of group group does not join: the worker is draining"));
}

// The session goes on, and may join again.
TEST_F(EndsTest, ACancelledJoinTakesNoRank) {
  StartWorker();
  const std::unique_ptr<v1::WorkerService::Stub> stub = StubOf(0);
  grpc::ClientContext stream_context;
  const auto stream = stub->OpenSession(&stream_context, {});
  v1::SessionEvent event;
  ASSERT_TRUE(stream->Read(&event));
  v1::JoinGroupRequest request;
  request.set_session(event.opened().session());
  request.set_group("group");
  request.set_rank(0);
  request.set_world_size(2);
  v1::JoinGroupResponse response;
  grpc::ClientContext cancelled;
  auto joined = std::async(std::launch::async,
                           [&] { return stub->JoinGroup(&cancelled, request, &response); });
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 1));
  cancelled.TryCancel();
  EXPECT_EQ(joined.get().error_code(), grpc::StatusCode::CANCELLED);
  const auto admin = client::AdminClient::Create(testing::Connect(coordinator_.address()));
  EXPECT_TRUE(testing::Eventually([&] {
    const absl::StatusOr<client::GroupInfo> group = admin->GetGroup("group");
    return group.ok() && group->members.empty();
  }));
  request.set_group("alone");
  request.set_world_size(1);
  grpc::ClientContext context;
  const grpc::Status alone = stub->JoinGroup(&context, request, &response);
  EXPECT_TRUE(alone.ok()) << alone.error_message();
  stream_context.TryCancel();
  EXPECT_TRUE(AwaitEmpty(0));
}

// The health that a load balancer sees.
TEST_F(EndsTest, HealthSaysThatItDrains) {
  StartWorker({"--drain-grace", "60s"});
  auto session = Connect(0, Transport::kTcp);
  auto other = Connect(0, Transport::kTcp);
  const Groups groups = JoinAll({session, other}, "group");
  EXPECT_EQ(Health(0), std::string("\x08\x01", 2));
  // A call is counted until a moment after its answer has come.
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).call_count() == 0; }));
  auto parked = std::async(std::launch::async, [&] {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {8});
    return groups[0]->AllReduce(tensor, tensor, kMax, {});
  });
  ASSERT_TRUE(testing::Eventually([&] { return Describe(0).call_count() == 1; }));
  auto ended = std::async(std::launch::async, [&] { return worker(0).Terminate(kTimeout); });
  EXPECT_TRUE(testing::Eventually([&] { return Health(0) == std::string("\x08\x02", 2); }));
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {8});
  const absl::Status last = groups[1]->AllReduce(tensor, tensor, kMax, {});
  EXPECT_TRUE(last.ok()) << last;
  const absl::Status first = parked.get();
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_EQ(ended.get().value_or(-1), 0);
}

TEST_F(EndsTest, ALivingWorkersAddressIsNotTaken) {
  StartWorker();
  for (const Transport transport : {Transport::kUnix, Transport::kTcp}) {
    CoordinatorProcess::Options options;
    options.binary = "worker/daemon/cohort-worker";
    options.flags = {"--listen", AddressOf(0, transport)};
    CoordinatorProcess second(options);
    EXPECT_FALSE(second.Start().ok());
  }
  EXPECT_NE(Connect(0, Transport::kUnix), nullptr);
}

TEST_F(EndsTest, ObjectsExpireAfterTheDataExpirationOfTheGroup) {
  StartWorker();
  const auto session = Connect(0, Transport::kUnix);
  const auto join = [&](const std::string& name, int rank, absl::Duration expiration) {
    client::RemoteGroupOptions rank_options = GroupOptionsOf(session, name, rank, 2);
    rank_options.data_expiration = expiration;
    return client::RemoteGroup::Create(std::move(rank_options));
  };
  std::vector<absl::StatusOr<std::unique_ptr<client::RemoteGroup>>> ranks(2);
  testing::OnThreads(2, [&](int rank) {
    ranks[static_cast<size_t>(rank)] = join("group", rank, absl::Seconds(2));
  });
  for (const auto& rank : ranks) ASSERT_TRUE(rank.ok()) << rank.status();

  const auto admin = client::AdminClient::Create(testing::Connect(coordinator_.address()));
  const auto held = [&] {
    const absl::StatusOr<client::ServerStats> stats = admin->Stats();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? stats->bytes_held : 0;
  };
  constexpr int64_t kBytes = 500000;
  const int64_t before = held();
  ASSERT_EQ((*ranks[0])->SendObject(std::string(kBytes, 'x'), 1, {}), absl::OkStatus());
  EXPECT_TRUE(testing::Eventually([&] { return held() < before + kBytes; }));

  // All ranks must bring the same expiration. The second rank to join is refused at once, and may
  // join again.
  std::vector<absl::Status> refused(2);
  testing::OnThreads(2, [&](int rank) {
    const auto own = static_cast<size_t>(rank);
    ranks[own] = join("other", rank, absl::Seconds(rank + 2));
    if (ranks[own].ok()) return;
    refused[own] = ranks[own].status();
    ranks[own] = join("other", rank, absl::Seconds(3 - rank));
  });
  for (const auto& rank : ranks) ASSERT_TRUE(rank.ok()) << rank.status();
  const absl::Status& why = refused[0].ok() ? refused[1] : refused[0];
  EXPECT_TRUE(absl::IsFailedPrecondition(why)) << why;
  EXPECT_THAT(std::string(why.message()), HasSubstr("data expiration"));

  for (const absl::Duration wrong : {absl::ZeroDuration(), absl::Hours(25)}) {
    const absl::Status status = join("third", 0, wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("at most 24h"));
  }
}

TEST_F(EndsTest, SessionsAndGroupsOfOneWorkerAreApart) {
  StartWorker();
  // Two ranks of a group in one worker, and two groups in one session.
  auto first = Connect(0, Transport::kUnix);
  auto second = Connect(0, Transport::kUnix);
  const Groups one = JoinAll({first, second}, "one");
  Groups two = JoinAll({first, second}, "two");
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {100000});
  ExpectOk(OnRanks(one, [](client::Group& group) {
    const Tensor own = Tensor::Zeros(DataType::kF32, {100000});
    return group.AllReduce(own, own, kMax);
  }));
  EXPECT_EQ(Describe(0).ranks_size(), 4);
  EXPECT_EQ(Describe(0).session_count(), 2);
  two[0]->Abort(absl::InternalError("done with it"));
  EXPECT_EQ(two[1]->AllReduce(tensor, tensor, kMax, {}).code(), absl::StatusCode::kAborted);
  ExpectOk(OnRanks(one, [](client::Group& group) {
    const Tensor own = Tensor::Zeros(DataType::kF32, {8});
    return group.AllReduce(own, own, kMax);
  }));
  two.clear();
  EXPECT_EQ(Describe(0).ranks_size(), 2);
  EXPECT_GT(Describe(0).tensor_count(), 0);  // scratch, kept for later calls
}

}  // namespace
}  // namespace cohort
