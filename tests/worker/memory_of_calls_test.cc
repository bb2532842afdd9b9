// Tensors and objects that lie in calls count as memory of their session, until the call ends or
// its answer is taken.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::OnThreads;
using testing::Transport;
using testing::WorkerTest;

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
}

// Calls whose tensors and objects are inline. A group of two waits for its other rank.
class MemoryOfCallsTest : public WorkerTest {
 protected:
  static constexpr int64_t kMebibyte = int64_t{1} << 20;

  void SetUp() override {
    WorkerTest::SetUp();
    StartWorker({"--max-tensor-bytes", absl::StrCat(20 * kMebibyte)});
    stub_ = StubOf(0);
    reader_ = stub_->OpenSession(&stream_, {});
    v1::SessionEvent event;
    ASSERT_TRUE(reader_->Read(&event));
    session_ = event.opened().session();
    OnThreads(2, [this](int rank) { pair_[rank] = Join("pair", rank, 2); });
    alone_ = Join("alone", 0, 1);
  }
  void TearDown() override { stream_.TryCancel(); }

  uint64_t Join(const std::string& group, int rank, int world_size) {
    v1::JoinGroupRequest join;
    join.set_session(session_);
    join.set_group(group);
    join.set_rank(rank);
    join.set_world_size(world_size);
    v1::JoinGroupResponse joined;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status status = stub_->JoinGroup(&context, join, &joined);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return joined.group();
  }
  static v1::TensorRef Inline(int64_t size, const std::string& bytes) {
    v1::TensorRef ref;
    ref.mutable_layout()->set_data_type(static_cast<int>(DataType::kU8));
    ref.mutable_layout()->add_shape(size);
    ref.set_inline_(bytes);
    return ref;
  }
  grpc::Status Run(v1::RunCollectiveRequest request) {
    request.set_session(session_);
    v1::RunCollectiveResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    return stub_->RunCollective(&context, request, &response);
  }
  // Runs a call that needs no other rank and takes 6 MiB.
  grpc::Status RunAlone() {
    v1::RunCollectiveRequest request;
    request.set_group(alone_);
    request.set_collective(v1::COLLECTIVE_ALL_GATHER);
    *request.mutable_input() = Inline(3 * kMebibyte, std::string(3 * kMebibyte, 'x'));
    *request.mutable_output() = Inline(3 * kMebibyte, "");
    return Run(request);
  }
  // Expects that a call takes memory while `run` waits for the other rank, and not afterwards.
  void ExpectCounted(const std::function<grpc::Status()>& run) {
    grpc::Status status = RunAlone();
    ASSERT_TRUE(status.ok()) << status.error_message();
    std::thread waits([&] {
      grpc::Status ended;
      // A call alone may have the room at first.
      do {
        ended = run();
      } while (ended.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_EQ(ended.error_code(), grpc::StatusCode::ABORTED) << ended.error_message();
    });
    EXPECT_TRUE(testing::Eventually([&] { return !(status = RunAlone()).ok(); }));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr("all sessions hold 1"),
                                              HasSubstr("of 20971520 (--max-tensor-bytes)")));
    v1::AbortGroupRequest abort;
    abort.set_session(session_);
    abort.set_group(pair_[0]);
    v1::AbortGroupResponse aborted;
    grpc::ClientContext context;
    SetDeadline(context);
    EXPECT_TRUE(stub_->AbortGroup(&context, abort, &aborted).ok());
    waits.join();
    EXPECT_TRUE(testing::Eventually([&] { return RunAlone().ok(); }));
  }

  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext stream_;
  std::unique_ptr<grpc::ClientReader<v1::SessionEvent>> reader_;
  std::string session_;
  uint64_t pair_[2] = {0, 0};
  uint64_t alone_ = 0;
};

TEST_F(MemoryOfCallsTest, AnInlineOutputCountsUntilTheCallEnds) {
  ExpectCounted([this] {
    v1::RunCollectiveRequest request;
    request.set_group(pair_[0]);
    request.set_collective(v1::COLLECTIVE_SCATTER);
    request.set_root(1);
    *request.mutable_output() = Inline(15 * kMebibyte, "");
    return Run(request);
  });
}

TEST_F(MemoryOfCallsTest, InlineOutputsTogetherFitIntoAMessage) {
  v1::RunCollectiveRequest request;
  request.set_group(pair_[0]);
  request.set_collective(v1::COLLECTIVE_EXCHANGE);
  for (int i = 0; i < 2; ++i) {
    v1::TensorTransfer* const receive = request.add_transfers();
    receive->set_peer(1);
    *receive->mutable_tensor() = Inline(9 * kMebibyte, "");
  }
  const grpc::Status refused = Run(request);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("where --max-message-bytes leaves room for"));
}

TEST_F(MemoryOfCallsTest, AnInlineInputCountsUntilTheCallEnds) {
  ExpectCounted([this] {
    v1::RunCollectiveRequest request;
    request.set_group(pair_[0]);
    request.set_collective(v1::COLLECTIVE_GATHER);
    request.set_root(1);
    *request.mutable_input() = Inline(15 * kMebibyte, std::string(15 * kMebibyte, 'x'));
    return Run(request);
  });
}

// Fields that a call does not use lie in memory, too.
TEST_F(MemoryOfCallsTest, AnUnusedFieldCountsUntilTheCallEnds) {
  ExpectCounted([this] {
    v1::RunCollectiveRequest request;
    request.set_group(pair_[0]);
    request.set_collective(v1::COLLECTIVE_BARRIER);
    for (int64_t i = 0; i < 15 * kMebibyte / 8; ++i) request.add_sizes(0);
    return Run(request);
  });
}

TEST_F(MemoryOfCallsTest, AnObjectCountsUntilTheCallEnds) {
  ExpectCounted([this] {
    v1::RunObjectRequest request;
    request.set_session(session_);
    request.set_group(pair_[0]);
    request.set_operation(v1::OBJECT_OPERATION_RECEIVE);
    request.set_peer(1);
    request.set_object(std::string(9 * kMebibyte, 'x'));
    v1::RunObjectResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    return stub_->RunObject(&context, request, &response);
  });
}

// A client that does not take its answer holds memory of the worker.
TEST_F(MemoryOfCallsTest, AnAnswerCountsUntilItIsTaken) {
  v1::RunCollectiveRequest request;
  request.set_session(session_);
  request.set_group(alone_);
  request.set_collective(v1::COLLECTIVE_ALL_GATHER);
  *request.mutable_input() = Inline(8 * kMebibyte, std::string(8 * kMebibyte, 'x'));
  *request.mutable_output() = Inline(8 * kMebibyte, "");
  grpc::GenericStub stub(
      grpc::CreateChannel(AddressOf(0, Transport::kUnix), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  SetDeadline(context);
  grpc::CompletionQueue queue;
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, "/cohort.v1.WorkerService/RunCollective", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(await());
  const grpc::Slice slice(request.SerializeAsString());
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  ASSERT_TRUE(await());
  // Once it comes, the method has returned, and its answer waits for the client.
  call->ReadInitialMetadata(nullptr);
  ASSERT_TRUE(await());
  grpc::Status status = RunAlone();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  context.TryCancel();
  call->Finish(&status, nullptr);
  await();
  EXPECT_TRUE(testing::Eventually([&] { return RunAlone().ok(); }));
}

}  // namespace
}  // namespace cohort
