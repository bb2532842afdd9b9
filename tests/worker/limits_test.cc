// One client asks for more than its share: it gets an error that names the limit, and other clients
// are served. One file, though long: all tests ask one worker by the same stubs.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/tensor/tensor.h"
#include "base/unique_fd.h"
#include "client/collective/remote/worker_session_impl.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::OnThreads;
using testing::Transport;
using testing::WorkerTest;

constexpr int kShare = 3;
constexpr int kMaxCalls = 6;

UniqueFd ConnectTcp(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  to.sin_port = htons(static_cast<uint16_t>(port));
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
}

// A client that uses the worker's stubs directly.
class StubClient {
 public:
  explicit StubClient(std::unique_ptr<v1::WorkerService::Stub> stub, uint64_t bytes = 16)
      : stub_(std::move(stub)), bytes_(bytes) {
    reader_ = stub_->OpenSession(&stream_, {});
    v1::SessionEvent event;
    EXPECT_TRUE(reader_->Read(&event));
    session_ = event.opened().session();
    v1::CreateTensorRequest request;
    request.set_session(session_);
    request.mutable_layout()->set_data_type(static_cast<int>(DataType::kU8));
    request.mutable_layout()->add_shape(static_cast<int64_t>(bytes));
    v1::CreateTensorResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status made = stub_->CreateTensor(&context, request, &response);
    EXPECT_TRUE(made.ok()) << made.error_message();
    tensor_ = response.tensor();
  }
  ~StubClient() { stream_.TryCancel(); }

  class Write {
   public:
    explicit Write(v1::WorkerService::Stub& stub) {
      SetDeadline(context_);
      writer_ = stub.WriteTensor(&context_, &response_);
    }
    bool Send(const v1::WriteTensorRequest& part) { return writer_->Write(part); }
    // Returns the worker's status without ending the writes.
    grpc::Status Await() { return writer_->Finish(); }
    grpc::Status Finish() {
      writer_->WritesDone();
      return writer_->Finish();
    }
    uint64_t written() const { return response_.written(); }

   private:
    grpc::ClientContext context_;
    v1::WriteTensorResponse response_;
    std::unique_ptr<grpc::ClientWriter<v1::WriteTensorRequest>> writer_;
  };

  class Read {
   public:
    Read(v1::WorkerService::Stub& stub, const v1::ReadTensorRequest& request) {
      SetDeadline(context_);
      reader_ = stub.ReadTensor(&context_, request);
    }
    // Returns the worker's status without reading a part.
    grpc::Status Await() { return reader_->Finish(); }
    bool Take(v1::ReadTensorResponse* part) { return reader_->Read(part); }

   private:
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<v1::ReadTensorResponse>> reader_;
  };
  std::unique_ptr<Read> StartRead() {
    v1::ReadTensorRequest request;
    request.set_session(session_);
    request.set_tensor(tensor_);
    request.set_size(bytes_);
    return std::make_unique<Read>(*stub_, request);
  }

  std::unique_ptr<Write> StartWrite() { return std::make_unique<Write>(*stub_); }
  v1::WriteTensorRequest FirstPart(const std::string& bytes) const {
    v1::WriteTensorRequest part;
    part.set_session(session_);
    part.set_tensor(tensor_);
    part.set_bytes(bytes);
    return part;
  }
  grpc::Status WriteOnce() {
    const std::unique_ptr<Write> write = StartWrite();
    write->Send(FirstPart("1234"));
    return write->Finish();
  }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext stream_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> reader_;
  std::string session_;
  const uint64_t bytes_;
  uint64_t tensor_ = 0;
};

// More than gRPC's windows and the kernel's buffers take.
constexpr uint64_t kManyBytes = uint64_t{64} << 20;

class StreamLimitsTest : public WorkerTest {
 protected:
  void Start(const std::string& idle_limit) {
    StartWorker({"--max-calls", absl::StrCat(kMaxCalls), "--max-calls-per-session",
                 absl::StrCat(kShare), "--stream-idle-limit", idle_limit});
  }
  bool AwaitCalls(int count) {
    return testing::Eventually([&] { return Describe(0).call_count() == count; });
  }
};

TEST_F(StreamLimitsTest, IdleWritesOfOneSessionLeaveTheCallsOfOthers) {
  Start("1h");
  StubClient greedy(StubOf(0));
  StubClient modest(StubOf(0));
  std::vector<std::unique_ptr<StubClient::Write>> idle;
  for (int i = 0; i < kShare; ++i) {
    idle.push_back(greedy.StartWrite());
    ASSERT_TRUE(idle.back()->Send(greedy.FirstPart("1234")));
  }
  ASSERT_TRUE(AwaitCalls(kShare));
  const std::unique_ptr<StubClient::Write> refused = greedy.StartWrite();
  refused->Send(greedy.FirstPart("1234"));
  const grpc::Status status = refused->Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("3 calls of this session"), HasSubstr("--max-calls-per-session")));
  const grpc::Status other = modest.WriteOnce();
  EXPECT_TRUE(other.ok()) << other.error_message();
  // The writes that were idle go on.
  v1::WriteTensorRequest more;
  more.set_bytes("56");
  EXPECT_TRUE(idle[0]->Send(more));
  const grpc::Status finished = idle[0]->Finish();
  EXPECT_TRUE(finished.ok()) << finished.error_message();
  EXPECT_EQ(idle[0]->written(), 6u);
  EXPECT_TRUE(AwaitCalls(kShare - 1));
  const grpc::Status again = greedy.WriteOnce();
  EXPECT_TRUE(again.ok()) << again.error_message();
}

TEST_F(StreamLimitsTest, AnIdleWriteEndsAndNamesTheLimit) {
  Start("300ms");
  StubClient client(StubOf(0));
  const std::unique_ptr<StubClient::Write> begun = client.StartWrite();
  ASSERT_TRUE(begun->Send(client.FirstPart("1234")));
  const std::unique_ptr<StubClient::Write> silent = client.StartWrite();
  for (StubClient::Write* const write : {begun.get(), silent.get()}) {
    const grpc::Status status = write->Await();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr("no part for 300ms"), HasSubstr("--stream-idle-limit")));
  }
  EXPECT_TRUE(AwaitCalls(0));
}

// The limit is the time between two parts, not that of the whole write.
TEST_F(StreamLimitsTest, AWriteThatGoesOnIsNotIdle) {
  constexpr absl::Duration kLimit = absl::Seconds(1);
  Start(absl::FormatDuration(kLimit));
  StubClient client(StubOf(0));
  const std::unique_ptr<StubClient::Write> write = client.StartWrite();
  ASSERT_TRUE(write->Send(client.FirstPart("")));
  v1::WriteTensorRequest part;
  const Instant end = Clock::Steady().Now() + 3 * kLimit;
  bool goes_on = true;
  while (goes_on && Clock::Steady().Now() < end) {
    goes_on = write->Send(part);
    std::this_thread::yield();
  }
  const grpc::Status status = write->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(StreamLimitsTest, AReadWhoseClientTakesNothingEnds) {
  Start("300ms");
  StubClient client(StubOf(0), kManyBytes);
  const std::unique_ptr<StubClient::Read> first = client.StartRead();
  const std::unique_ptr<StubClient::Read> second = client.StartRead();
  ASSERT_TRUE(AwaitCalls(2));
  EXPECT_TRUE(AwaitCalls(0));
  for (StubClient::Read* const read : {first.get(), second.get()}) {
    // gRPC's client holds the status back until the caller has read all earlier messages.
    v1::ReadTensorResponse part;
    while (read->Take(&part)) {
    }
    EXPECT_EQ(read->Await().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(StreamLimitsTest, ReadsCountAndEndWithTheirBytes) {
  Start("1h");
  StubClient client(StubOf(0), kManyBytes);
  std::vector<std::unique_ptr<StubClient::Read>> idle;
  for (int i = 0; i < kShare; ++i) idle.push_back(client.StartRead());
  ASSERT_TRUE(AwaitCalls(kShare));
  const grpc::Status refused = client.StartRead()->Await();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("--max-calls-per-session"));
  uint64_t bytes = 0;
  v1::ReadTensorResponse part;
  while (idle[0]->Take(&part)) bytes += part.bytes().size();
  EXPECT_EQ(bytes, kManyBytes);
  EXPECT_TRUE(idle[0]->Await().ok());
  EXPECT_TRUE(AwaitCalls(kShare - 1));
}

TEST_F(StreamLimitsTest, ThePartsOfReadsCountAsTensors) {
  StartWorker({"--max-tensor-bytes", absl::StrCat(kManyBytes + (uint64_t{8} << 20)),
               "--stream-idle-limit", "1h"});
  StubClient client(StubOf(0), kManyBytes);
  // Two have room, and 16 go on without.
  std::vector<std::unique_ptr<StubClient::Read>> idle;
  for (int i = 0; i < 18; ++i) {
    idle.push_back(client.StartRead());
    ASSERT_TRUE(AwaitCalls(i + 1));
  }
  const grpc::Status refused = client.StartRead()->Await();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("a read of a tensor takes 3145728 bytes"),
                                             HasSubstr("of 75497472 (--max-tensor-bytes)")));
  // One that had room, and one that had none, make place for the next.
  for (const size_t ended : {0, 17}) {
    v1::ReadTensorResponse part;
    while (idle[ended]->Take(&part)) {
    }
    EXPECT_TRUE(idle[ended]->Await().ok());
    ASSERT_TRUE(AwaitCalls(17));
    idle[ended] = client.StartRead();
    EXPECT_TRUE(idle[ended]->Take(&part));
  }
}

TEST_F(StreamLimitsTest, WritesWithoutAFirstPartAreLimitedApart) {
  Start("1h");
  StubClient greedy(StubOf(0));
  StubClient modest(StubOf(0));
  std::vector<std::unique_ptr<StubClient::Write>> silent;
  // One more than fit: the worker refuses one of them, whichever it sees last.
  for (int i = 0; i <= kMaxCalls; ++i) silent.push_back(greedy.StartWrite());
  const std::unique_ptr<StubClient::Write> refused = greedy.StartWrite();
  const grpc::Status status = refused->Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("6 streams have not sent their first part"),
                                            HasSubstr("--max-calls")));
  // Other clients' calls, which are not streams, still work.
  std::vector<std::shared_ptr<client::WorkerSession>> sessions = {Connect(0, Transport::kTcp),
                                                                  Connect(0, Transport::kTcp)};
  const Groups groups = JoinAll(sessions, "group");
  ExpectOk(OnRanks(groups, [](client::Group& group) {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {4});
    return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
  }));
}

// A session's memory for calls is kept for later calls, but has a bound.
TEST_F(StreamLimitsTest, MemoryThatASessionKeepsForItsCallsIsBounded) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  Start("1h");
  const std::shared_ptr<client::WorkerSession> session = Connect(0, Transport::kTcp);
  auto& wire = client::WorkerSessionImpl::Of(*session);
  std::vector<client::WorkerSessionImpl::Scratch> taken;
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<client::WorkerSessionImpl::Scratch> scratch = wire.TakeScratch(100 * kMebibyte);
    ASSERT_TRUE(scratch.ok()) << scratch.status();
    taken.push_back(*scratch);
  }
  EXPECT_GE(Describe(0).tensor_bytes(), 500 * kMebibyte);
  for (const client::WorkerSessionImpl::Scratch& scratch : taken) wire.GiveBack(scratch, true);
  const int64_t kept = Describe(0).tensor_bytes();
  EXPECT_LE(kept, 256 * kMebibyte);
  EXPECT_GE(kept, 100 * kMebibyte) << "the next call needs no new memory";
}

class DescriptorsTest : public WorkerTest {
 protected:
  // A folder of /proc.
  ptrdiff_t OpenDescriptors() {
    return std::distance(
        std::filesystem::directory_iterator(absl::StrCat("/proc/", worker(0).pid(), "/fd")), {});
  }
};

TEST_F(DescriptorsTest, GroupsCountUntilTheirSessionsLeaveThem) {
  // A session and one group of two have 13; the group of one rank has 8.
  StartWorker({"--max-descriptors-per-session", "20"});
  const auto first = Connect(0, Transport::kRemoteTcp);
  const auto second = Connect(0, Transport::kRemoteTcp);
  ptrdiff_t one_group = 0;
  {
    const ptrdiff_t before = OpenDescriptors();
    const Groups groups = JoinAll({first, second}, "group");
    ASSERT_NE(groups[0], nullptr);
    one_group = OpenDescriptors() - before;
    const absl::Status refused =
        client::RemoteGroup::Create(GroupOptionsOf(first, "another", 0, 1)).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("a group of 1 ranks takes 8 file descriptors; this session holds 13 of "
                          "20 (--max-descriptors-per-session)"));
  }
  EXPECT_TRUE(testing::Eventually(
      [&] { return client::RemoteGroup::Create(GroupOptionsOf(first, "another", 0, 1)).ok(); }));
  // The counted descriptors cover the open ones.
  EXPECT_LE(one_group, 2 * 11);
}

// Each rank has three sockets to every other rank, and three more to its counterpart on the other
// host.
TEST_F(DescriptorsTest, SocketsBetweenRanksCount) {
  StartWorker({"--max-descriptors-per-session", "32", "--host-identity", "one"});
  StartWorker({"--host-identity", "other"});
  const std::vector<std::shared_ptr<client::WorkerSession>> sessions = {
      Connect(0, Transport::kRemoteTcp), Connect(0, Transport::kRemoteTcp),
      Connect(1, Transport::kRemoteTcp), Connect(1, Transport::kRemoteTcp)};
  const ptrdiff_t before = OpenDescriptors();
  const Groups groups = JoinAll(sessions, "group");
  for (const auto& group : groups) ASSERT_NE(group, nullptr);
  const ptrdiff_t opened = OpenDescriptors() - before;
  const absl::Status refused =
      client::RemoteGroup::Create(GroupOptionsOf(sessions[0], "another", 0, 1)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("this session holds 25 of 32"));
  // The counted descriptors cover the open ones, except those that a process's first group opens
  // for all groups.
  constexpr ptrdiff_t kShared = 8;
  EXPECT_LE(opened, 2 * 23 + kShared);
}

TEST_F(DescriptorsTest, TheWorkerRaisesItsLimitAsFarAsTheSystemAllows) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {256, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  StartWorker();
  rlimit of_worker = {};
  EXPECT_EQ(prlimit(worker(0).pid(), RLIMIT_NOFILE, nullptr, &of_worker), 0);
  EXPECT_EQ(of_worker.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// A worker with a low limit on threads.
class ThreadLimitTest : public WorkerTest {
 protected:
  static constexpr int kThreads = 64;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to count threads by user";
    WorkerTest::SetUp();
    const std::string worker = testing::ProgramPath(worker_binary_);
    worker_binary_ = "tests/worker/run_with_thread_limit";
    StartWorker({}, {absl::StrCat("COHORT_TEST_PROGRAM=", worker),
                     absl::StrCat("COHORT_TEST_THREADS=", kThreads)});
  }

  // While no threads are left, gRPC's own threads are refused as well.
  void AwaitServing() {
    EXPECT_TRUE(testing::Eventually([this] {
      grpc::ClientContext context;
      SetDeadline(context);
      v1::GetWorkerResponse response;
      return StubOf(0)->GetWorker(&context, {}, &response).ok();
    })) << "the worker does not answer";
  }
  void ExpectCollectivesWork() {
    const Groups groups =
        JoinAll({Connect(0, Transport::kTcp), Connect(0, Transport::kRemoteTcp)}, "works");
    ExpectOk(OnRanks(groups, [](client::Group& group) {
      const Tensor tensor = Tensor::Zeros(DataType::kF32, {4});
      return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
    }));
  }
};

TEST_F(ThreadLimitTest, IdleFramedConnectionsEndNothing) {
  ExpectCollectivesWork();
  {
    std::vector<UniqueFd> connections;
    for (int i = 0; i < kThreads * 2; ++i) {
      connections.push_back(ConnectTcp(worker(0).address()));
      ASSERT_TRUE(connections.back().is_open());
      send(connections.back().get(), framed_rpc::kPreface.data(), framed_rpc::kPreface.size(),
           MSG_NOSIGNAL);
    }
  }
  AwaitServing();
  ExpectCollectivesWork();
}

TEST_F(ThreadLimitTest, JoiningIsRefusedForThatCallerAlone) {
  ExpectCollectivesWork();
  const auto session = Connect(0, Transport::kRemoteTcp);
  std::vector<absl::Status> statuses(kThreads * 2);
  OnThreads(static_cast<int>(statuses.size()), [&](int i) {
    client::RemoteGroupOptions rank_options =
        GroupOptionsOf(session, absl::StrCat("group-", i), 0, 2);
    rank_options.join_timeout = absl::Seconds(5);
    statuses[static_cast<size_t>(i)] = client::RemoteGroup::Create(rank_options).status();
  });
  int refused = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    if (!absl::IsResourceExhausted(status)) continue;
    ++refused;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("cannot start thread"),
                      HasSubstr(absl::StrCat("RLIMIT_NPROC ", kThreads))));
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, static_cast<int>(statuses.size()));
  AwaitServing();
  ExpectCollectivesWork();
}

// gRPC starts some ten threads, and ends the process by a signal if the system refuses one.
TEST(FewThreadsTest, BothDaemonsNameTheLimitInsteadOfStarting) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to count threads by user";
  for (const char* const program :
       {"coordinator/cohort-coordinator", "worker/daemon/cohort-worker"}) {
    for (const int threads : {8, 12}) {
      SCOPED_TRACE(absl::StrCat(program, " with ", threads, " threads"));
      testing::ChildProcess daemon(
          {"/usr/bin/env", absl::StrCat("COHORT_TEST_PROGRAM=", testing::ProgramPath(program)),
           absl::StrCat("COHORT_TEST_THREADS=", threads),
           testing::ProgramPath("tests/worker/run_with_thread_limit"), "--listen", "127.0.0.1:0"});
      const absl::StatusOr<int> exit = daemon.Wait(kTimeout);
      ASSERT_TRUE(exit.ok()) << exit.status();
      EXPECT_EQ(*exit, 1);
      EXPECT_THAT(daemon.ErrorText(),
                  HasSubstr(absl::StrCat("RESOURCE_EXHAUSTED: this process may have ", threads,
                                         " threads (RLIMIT_NPROC, or pids.max of its cgroup), and "
                                         "needs 16 at least")));
    }
  }
}

}  // namespace
}  // namespace cohort
