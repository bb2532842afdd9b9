// Callers that break the protocol: each gets an error that names its mistake, and the worker goes
// on. One file, though long: all tests call one worker by hand-made requests.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "client/collective/remote/attach_connection.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"
#include "worker/group/connections/transfer_connections.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;
using testing::WorkerTest;
using Stub = v1::WorkerService::Stub;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

class BadInputTest : public WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    StartWorker({"--max-message-bytes", "65536"});
    stub_ = StubOf(0);
    reader_ = stub_->OpenSession(&stream_, {});
    v1::SessionEvent event;
    ASSERT_TRUE(reader_->Read(&event));
    opened_ = event.opened();
    v1::JoinGroupRequest join;
    join.set_session(opened_.session());
    join.set_group("group");
    join.set_rank(0);
    join.set_world_size(1);
    v1::JoinGroupResponse joined;
    ASSERT_TRUE(Call(&Stub::JoinGroup, join, &joined).ok());
    group_ = joined.group();
    v1::CreateTensorRequest create;
    create.set_session(opened_.session());
    *create.mutable_layout() = Layout({16});
    v1::CreateTensorResponse created;
    ASSERT_TRUE(Call(&Stub::CreateTensor, create, &created).ok());
    tensor_ = created.tensor();
  }

  void TearDown() override {
    // Whatever happened before, the worker still works.
    v1::RunCollectiveRequest request = AllReduce();
    v1::RunCollectiveResponse response;
    const grpc::Status status = Call(&Stub::RunCollective, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    stream_.TryCancel();
    EXPECT_TRUE(AwaitEmpty(0));
  }

  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    return ((*stub_).*method)(&context, request, response);
  }

  static v1::TensorLayout Layout(const std::vector<int64_t>& shape,
                                 const std::vector<int64_t>& strides = {}) {
    v1::TensorLayout layout;
    layout.set_data_type(static_cast<int>(DataType::kF32));
    layout.mutable_shape()->Add(shape.begin(), shape.end());
    layout.mutable_strides()->Add(strides.begin(), strides.end());
    return layout;
  }
  v1::TensorRef Ref(const v1::TensorLayout& layout, int64_t first = 0) const {
    v1::TensorRef ref;
    *ref.mutable_layout() = layout;
    ref.set_tensor(tensor_);
    ref.set_first(first);
    return ref;
  }
  v1::RunCollectiveRequest AllReduce() const {
    v1::RunCollectiveRequest request;
    request.set_session(opened_.session());
    request.set_group(group_);
    request.set_collective(v1::COLLECTIVE_ALL_REDUCE);
    request.set_reduce_op(static_cast<int>(ReduceOp::kSum));
    *request.mutable_input() = Ref(Layout({16}));
    request.set_in_place(true);
    return request;
  }
  void ExpectRefused(const v1::RunCollectiveRequest& request, grpc::StatusCode code,
                     const std::string& why) {
    v1::RunCollectiveResponse response;
    const grpc::Status status = Call(&Stub::RunCollective, request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(why));
  }

  std::unique_ptr<Stub> stub_;
  grpc::ClientContext stream_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> reader_;
  v1::SessionOpened opened_;
  uint64_t group_ = 0;
  uint64_t tensor_ = 0;
  // The session ends with it.
  std::unique_ptr<client::AttachConnection> attached_;
};

// A client that was interrupted does not know whether the worker has answered.
TEST_F(BadInputTest, AnObjectThatTheClientHasNotGotIsSentAgain) {
  uint64_t groups[2] = {0, 0};  // two ranks of this session, by rank
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      v1::JoinGroupRequest join;
      join.set_session(opened_.session());
      join.set_group("pair");
      join.set_rank(rank);
      join.set_world_size(2);
      v1::JoinGroupResponse joined;
      EXPECT_TRUE(Call(&Stub::JoinGroup, join, &joined).ok());
      groups[rank] = joined.group();
    });
  }
  for (std::thread& thread : threads) thread.join();
  v1::RunObjectRequest request;
  request.set_session(opened_.session());
  request.set_group(groups[1]);
  request.set_operation(v1::OBJECT_OPERATION_SEND);
  for (const char* const object : {"first", "second", "third"}) {
    request.set_object(object);
    v1::RunObjectResponse sent;
    ASSERT_TRUE(Call(&Stub::RunObject, request, &sent).ok());
  }
  request.clear_object();
  request.set_group(groups[0]);
  request.set_peer(1);
  request.set_operation(v1::OBJECT_OPERATION_RECEIVE);
  const auto receive = [&](std::optional<uint64_t> taken) {
    request.clear_taken();
    if (taken.has_value()) request.set_taken(*taken);
    v1::RunObjectResponse received;
    const grpc::Status status = Call(&Stub::RunObject, request, &received);
    return status.ok() ? received.objects(0) : status.error_message();
  };
  EXPECT_EQ(receive(0), "first");
  EXPECT_EQ(receive(0), "first");
  EXPECT_EQ(receive(1), "second");
  EXPECT_EQ(receive(1), "second");
  EXPECT_EQ(receive(std::nullopt), "third") << "a client of an older version";
}

TEST_F(BadInputTest, ABarrierOfObjectsNeedsTheCoordinatorAndOneOfTensorsDoesNot) {
  v1::RunObjectRequest of_objects;
  of_objects.set_session(opened_.session());
  of_objects.set_group(group_);
  of_objects.set_operation(v1::OBJECT_OPERATION_BARRIER);
  v1::RunObjectResponse objects;
  EXPECT_TRUE(Call(&Stub::RunObject, of_objects, &objects).ok());
  coordinator_.Pause();
  of_objects.mutable_timeout()->set_nanos(100'000'000);
  EXPECT_FALSE(Call(&Stub::RunObject, of_objects, &objects).ok());
  v1::RunCollectiveRequest of_tensors;
  of_tensors.set_session(opened_.session());
  of_tensors.set_group(group_);
  of_tensors.set_collective(v1::COLLECTIVE_BARRIER);
  v1::RunCollectiveResponse response;
  const grpc::Status met = Call(&Stub::RunCollective, of_tensors, &response);
  EXPECT_TRUE(met.ok()) << met.error_message();
  coordinator_.Resume();
}

TEST_F(BadInputTest, UnknownNames) {
  v1::RunCollectiveRequest request = AllReduce();
  request.set_session("short");
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "5 bytes");
  request.set_session(std::string(16, 'x'));
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "no such session");
  request = AllReduce();
  request.set_group(99);
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "no group 99");
  request = AllReduce();
  request.mutable_input()->set_tensor(99);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "no tensor 99");
  request = AllReduce();
  request.set_collective(v1::COLLECTIVE_UNSPECIFIED);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "not the number of a collective");
  request.set_collective(static_cast<v1::Collective>(77));
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "not the number of a collective");
  request = AllReduce();
  request.set_reduce_op(0);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "reduction");
  request = AllReduce();
  request.mutable_timeout()->set_seconds(-1);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "timeout");
  request.mutable_timeout()->set_seconds(kHuge);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "timeout");
  request = AllReduce();
  request.mutable_input()->clear_where();
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "neither inline");
}

// A request is kept as long as its call, and its texts come back in errors and in the log.
TEST_F(BadInputTest, TextsThatAreTooLong) {
  const std::string text(4097, 'x');
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
  v1::OpenSessionRequest open;
  open.set_client(text);
  const auto reader = stub_->OpenSession(&context, open);
  v1::SessionEvent event;
  EXPECT_FALSE(reader->Read(&event));
  const grpc::Status opened = reader->Finish();
  EXPECT_EQ(opened.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(opened.error_message(), "client: 4097 bytes; at most 4096");
  v1::JoinGroupRequest join;
  join.set_session(opened_.session());
  join.set_group("group");
  join.set_world_size(1);
  join.set_tenant(text);
  v1::JoinGroupResponse joined;
  const grpc::Status refused = Call(&Stub::JoinGroup, join, &joined);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), "tenant: 4097 bytes; at most 128");
  join.clear_tenant();
  join.set_coordinator(std::string(4096, 'x'));
  const grpc::Status denied = Call(&Stub::JoinGroup, join, &joined);
  EXPECT_EQ(denied.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_LT(denied.error_message().size(), 500u);
  v1::RunCollectiveRequest request = AllReduce();
  request.set_why(text);
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "why: 4097 bytes; at most 4096");
}

TEST_F(BadInputTest, CallsWithoutAMessage) {
  grpc::GenericStub stub(
      grpc::CreateChannel(AddressOf(0, Transport::kUnix), grpc::InsecureChannelCredentials()));
  const auto* const service =
      v1::OpenSessionRequest::descriptor()->file()->FindServiceByName("WorkerService");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->name();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    grpc::CompletionQueue queue;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok);
    };
    const auto call =
        stub.PrepareCall(&context, absl::StrCat("/cohort.v1.WorkerService/", name), &queue);
    call->StartCall(nullptr);
    ASSERT_TRUE(await());
    call->WritesDone(nullptr);
    ASSERT_TRUE(await());
    grpc::Status status;
    call->Finish(&status, nullptr);
    ASSERT_TRUE(await());
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << name;
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << name;
  }
}

template <typename Request>
Request WithManyFields() {
  Request request;
  auto* const fields = request.GetReflection()->MutableUnknownFields(&request);
  for (int i = 0; i < 70000; ++i) fields->AddVarint(15, 1);
  return request;
}

// A field of two bytes takes up to a hundred once it is parsed.
TEST_F(BadInputTest, RequestsOfTooManyFields) {
  StartWorker({});  // it takes larger messages than the other one
  const std::unique_ptr<Stub> other = StubOf(1);
  const auto call = [&](auto method, auto request, auto response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    const grpc::Status status = ((*other).*method)(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              absl::StrCat(request.GetDescriptor()->name(),
                           ": more than 65536 fields, elements of lists included"));
  };
  call(&Stub::LeaveGroup, WithManyFields<v1::LeaveGroupRequest>(), v1::LeaveGroupResponse());
  call(&Stub::JoinGroup, WithManyFields<v1::JoinGroupRequest>(), v1::JoinGroupResponse());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
  const auto reader = other->OpenSession(&context, WithManyFields<v1::OpenSessionRequest>());
  v1::SessionEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_THAT(reader->Finish().error_message(), HasSubstr("OpenSessionRequest: more than"));
  v1::GetWorkerResponse worker;
  grpc::ClientContext after;
  EXPECT_TRUE(other->GetWorker(&after, v1::GetWorkerRequest(), &worker).ok());
}

TEST_F(BadInputTest, ElementsOutsideOfTheirTensor) {
  const auto refuse = [this](const v1::TensorRef& ref) {
    v1::RunCollectiveRequest request = AllReduce();
    *request.mutable_input() = ref;
    ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "a tensor of f32");
  };
  refuse(Ref(Layout({17})));
  refuse(Ref(Layout({16}), 1));
  refuse(Ref(Layout({1}), -1));
  refuse(Ref(Layout({1}), kHuge));
  refuse(Ref(Layout({2}, {16})));
  refuse(Ref(Layout({2}, {-1})));
  refuse(Ref(Layout({kHuge})));
  refuse(Ref(Layout({int64_t{1} << 31, int64_t{1} << 31, 4})));
  refuse(Ref(Layout({-4})));
  refuse(Ref(Layout({2, 2}, {1})));
  refuse(Ref(Layout({2, 2}, {kHuge, kHuge})));
}

TEST_F(BadInputTest, InlineTensorsOfAnotherSize) {
  v1::RunCollectiveRequest request = AllReduce();
  request.mutable_input()->set_inline_("too short");
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "9 came");
  request.mutable_input()->set_inline_(std::string(64, '\0'));
  *request.mutable_input()->mutable_layout() = Layout({16}, {2});
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "contiguous");
  // The answer would be larger than any message.
  request = AllReduce();
  request.set_in_place(false);
  *request.mutable_output()->mutable_layout() = Layout({int64_t{1} << 30});
  request.mutable_output()->set_inline_("");
  ExpectRefused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "--max-message-bytes");
  // No output at all.
  request.clear_output();
  ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, "all_reduce");
}

TEST_F(BadInputTest, PartsOutsideOfTheirTensor) {
  const auto write = [this](uint64_t offset, size_t size) {
    grpc::ClientContext context;
    v1::WriteTensorResponse response;
    auto writer = stub_->WriteTensor(&context, &response);
    v1::WriteTensorRequest part;
    part.set_session(opened_.session());
    part.set_tensor(tensor_);
    part.set_offset(offset);
    part.set_bytes(std::string(size, 'x'));
    writer->Write(part);
    writer->WritesDone();
    return writer->Finish().error_code();
  };
  EXPECT_EQ(write(0, 64), grpc::StatusCode::OK);
  EXPECT_EQ(write(0, 65), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(write(64, 1), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(write(std::numeric_limits<uint64_t>::max(), 8), grpc::StatusCode::OUT_OF_RANGE);
  const auto read = [this](uint64_t offset, uint64_t size) {
    grpc::ClientContext context;
    v1::ReadTensorRequest request;
    request.set_session(opened_.session());
    request.set_tensor(tensor_);
    request.set_offset(offset);
    request.set_size(size);
    auto reader = stub_->ReadTensor(&context, request);
    v1::ReadTensorResponse part;
    while (reader->Read(&part)) {
    }
    return reader->Finish().error_code();
  };
  EXPECT_EQ(read(60, 4), grpc::StatusCode::OK);
  EXPECT_EQ(read(60, 5), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(read(8, std::numeric_limits<uint64_t>::max()), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(BadInputTest, TensorsLargerThanTheMachine) {
  v1::CreateTensorRequest request;
  request.set_session(opened_.session());
  *request.mutable_layout() = Layout({int64_t{1} << 50});
  v1::CreateTensorResponse response;
  EXPECT_EQ(Call(&Stub::CreateTensor, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  *request.mutable_layout() = Layout({kHuge, kHuge});
  EXPECT_EQ(Call(&Stub::CreateTensor, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::FreeTensorRequest free;
  free.set_session(opened_.session());
  free.set_tensor(12345);
  v1::FreeTensorResponse freed;
  EXPECT_EQ(Call(&Stub::FreeTensor, free, &freed).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(BadInputTest, ImpossibleRanksAndSizes) {
  v1::JoinGroupRequest request;
  request.set_session(opened_.session());
  request.mutable_timeout()->set_seconds(5);
  v1::JoinGroupResponse response;
  const auto join = [&] { return Call(&Stub::JoinGroup, request, &response).error_code(); };
  EXPECT_EQ(join(), grpc::StatusCode::INVALID_ARGUMENT);  // no name, no size
  request.set_group("other");
  request.set_world_size(-3);
  EXPECT_EQ(join(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_world_size(2);
  request.set_rank(7);
  EXPECT_EQ(join(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_rank(0);
  request.set_coordinator("nonsense");
  EXPECT_EQ(join(), grpc::StatusCode::PERMISSION_DENIED);
  request.set_coordinator("");
}

// The client of an attached group runs its collectives. The worker hands the connections over once.
TEST_F(BadInputTest, AnAttachedGroupIsItsClients) {
  const Instant deadline = Clock::Steady().Now() + kTimeout;
  v1::JoinGroupRequest request;
  request.set_session(opened_.session());
  request.mutable_timeout()->set_seconds(5);
  request.set_group("own");
  request.set_world_size(1);
  request.set_rank(0);
  request.set_attached(true);
  v1::JoinGroupResponse joined;
  ASSERT_TRUE(Call(&Stub::JoinGroup, request, &joined).ok());
  v1::RunCollectiveRequest collective = AllReduce();
  collective.set_group(joined.group());
  v1::RunCollectiveResponse response;
  EXPECT_EQ(Call(&Stub::RunCollective, collective, &response).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  absl::StatusOr<std::unique_ptr<client::AttachConnection>> connected =
      client::AttachConnection::Connect(opened_.attach_socket(), opened_.session(), deadline);
  ASSERT_TRUE(connected.ok()) << connected.status();
  attached_ = *std::move(connected);
  v1::AttachRequest attach_request;
  attach_request.mutable_send_connections()->set_group(joined.group());
  attach_request.mutable_send_connections()->set_flight_record(tensor_);  // far too small
  EXPECT_EQ(attached_->Ask(attach_request, {}, deadline).status().code(),
            absl::StatusCode::kInvalidArgument);
  attach_request.mutable_send_connections()->set_flight_record(424242);
  EXPECT_EQ(attached_->Ask(attach_request, {}, deadline).status().code(),
            absl::StatusCode::kNotFound);
  attach_request.mutable_send_connections()->clear_flight_record();
  {
    MutexLock lock(&attached_->mutex());
    ASSERT_TRUE(attached_->AskLocked(attach_request, {}, deadline).ok());
    const absl::Status taken =
        worker::ReceiveConnections(attached_->socket(), nullptr, deadline).status();
    ASSERT_TRUE(taken.ok()) << taken;
  }
  EXPECT_EQ(attached_->Ask(attach_request, {}, deadline).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(BadInputTest, GarbageAtTheAttachSocket) {
  const auto soon = [] { return Clock::Steady().Now() + kTimeout; };
  const auto answer = [&](const std::string& hello) {
    const absl::StatusOr<shm::LocalSocket> socket =
        shm::LocalSocket::Connect(opened_.attach_socket(), soon());
    EXPECT_TRUE(socket.ok()) << socket.status();
    EXPECT_TRUE(socket->Send(hello, {}, soon()).ok());
    const absl::StatusOr<shm::LocalSocket::Message> message = socket->Receive(soon());
    EXPECT_TRUE(message.ok()) << message.status();
    v1::AttachAnswer parsed;
    EXPECT_TRUE(message.ok() && parsed.ParseFromString(message->bytes));
    EXPECT_TRUE(!message.ok() || message->fds.empty());
    return parsed.text();
  };
  EXPECT_THAT(answer("hello?"), HasSubstr("expected an AttachHello"));
  v1::AttachHello hello;
  hello.set_magic(v1::ATTACH_PROTOCOL_MAGIC);
  hello.set_version(9);
  EXPECT_THAT(answer(hello.SerializeAsString()), HasSubstr("version 9"));
  hello.set_version(1);
  EXPECT_THAT(answer(hello.SerializeAsString()), HasSubstr("session"));
  hello.set_session(std::string(16, 'x'));
  EXPECT_THAT(answer(hello.SerializeAsString()), HasSubstr("no such session"));
  std::mt19937 random(20261121);
  for (int i = 0; i < 200; ++i) {
    std::string garbage(1 + random() % 300, '\0');
    for (char& byte : garbage) byte = static_cast<char>(random());
    answer(garbage);
  }
}

TEST_F(BadInputTest, MemoryIsRegisteredIfItIsSealed) {
  const auto soon = [] { return Clock::Steady().Now() + kTimeout; };
  absl::StatusOr<std::unique_ptr<client::AttachConnection>> connected =
      client::AttachConnection::Connect(opened_.attach_socket(), opened_.session(), soon());
  ASSERT_TRUE(connected.ok()) << connected.status();
  attached_ = *std::move(connected);
  v1::AttachRequest request;
  request.mutable_register_memory()->set_bytes(4096);
  EXPECT_EQ(attached_->Ask(request, {}, soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
  // Memory that shrinks later would end the worker.
  for (const int seals : {0, F_SEAL_GROW | F_SEAL_SEAL}) {
    const UniqueFd open(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(open.get(), 4096), 0);
    ASSERT_EQ(fcntl(open.get(), F_ADD_SEALS, seals), 0);
    const int not_sealed[] = {open.get()};
    const absl::Status refused = attached_->Ask(request, not_sealed, soon()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("sealed"));
  }
  absl::StatusOr<shm::Segment> segment = shm::Segment::Create("test", 4096);
  ASSERT_TRUE(segment.ok());
  const int sealed[] = {segment->fd()};
  request.mutable_register_memory()->set_bytes(8192);
  EXPECT_EQ(attached_->Ask(request, sealed, soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
  request.mutable_register_memory()->set_bytes(4096);
  const absl::StatusOr<v1::AttachAnswer> answer = attached_->Ask(request, sealed, soon());
  ASSERT_TRUE(answer.ok()) << answer.status();
  // The registered memory is a tensor like any other.
  auto* const elements = reinterpret_cast<float*>(segment->data());
  for (int i = 0; i < 16; ++i) elements[i] = static_cast<float>(i);
  v1::RunCollectiveRequest collective = AllReduce();
  collective.mutable_input()->set_tensor(answer->tensor());
  collective.set_in_place(false);
  *collective.mutable_output() = collective.input();
  collective.mutable_output()->set_first(16);
  v1::RunCollectiveResponse response;
  const grpc::Status status = Call(&Stub::RunCollective, collective, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(elements[16 + 5], 5);
  // A group that was not joined as attached is not sent to the client.
  v1::AttachRequest attach_request;
  attach_request.mutable_send_connections()->set_group(group_);
  EXPECT_EQ(attached_->Ask(attach_request, {}, soon()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

class CallLimitTest : public WorkerTest {};

TEST_F(CallLimitTest, NamesItself) {
  StartWorker({"--max-calls", "1"});
  auto session = Connect(0, Transport::kTcp);
  client::RemoteGroupOptions waiting = GroupOptionsOf(session, "group", 0, 2);
  waiting.join_timeout = absl::Seconds(3);
  absl::Status first;
  absl::Status second;
  testing::OnThreads(2, [&](int thread) {
    client::RemoteGroupOptions options = waiting;
    options.group = absl::StrCat("group-", thread);
    (thread == 0 ? first : second) = client::RemoteGroup::Create(options).status();
  });
  const bool first_waited = absl::IsDeadlineExceeded(first);
  EXPECT_TRUE(absl::IsDeadlineExceeded(first_waited ? first : second)) << first << second;
  const absl::Status& refused = first_waited ? second : first;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-calls"));
}

}  // namespace
}  // namespace cohort
