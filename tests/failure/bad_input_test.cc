// Requests that no client of ours would send: each is answered with a clear error that names the
// field, nothing of it stays behind, and the coordinator lives.
#include <zlib.h>

#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/failure/members.h"
#include "tests/failure/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using ::testing::AnyOf;
using testing::Context;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::Stubs;

constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();
constexpr int kWorldSize = 3;

class BadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    stubs_ = std::make_unique<Stubs>(coordinator_.address());
    testing::OnThreads(kWorldSize, [&](int rank) {
      v1::JoinResponse response;
      const grpc::Status status = stubs_->groups->Join(
          Context().get(), testing::JoinRequestOf("group", rank, kWorldSize), &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      scopes_[rank].set_group("group");
      scopes_[rank].set_generation(response.generation());
      scopes_[rank].set_session(response.session());
    });
    before_ = Stats();
  }

  // Nothing was left behind, nobody lost a seat, and it still works.
  void TearDown() override {
    const v1::StatsResponse after = Stats();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(before_, after))
        << "before: " << before_.ShortDebugString() << "; after: " << after.ShortDebugString();
    v1::ServerStatsResponse server;
    EXPECT_TRUE(stubs_->admin->ServerStats(Context().get(), {}, &server).ok());
    EXPECT_EQ(server.group_count(), 1);
    EXPECT_EQ(server.member_count(), kWorldSize);
    EXPECT_EQ(server.waiter_count(), 0);
    testing::OnThreads(kWorldSize, [&](int rank) {
      v1::BarrierRequest request;
      *request.mutable_scope() = scopes_[rank];
      request.mutable_round()->set_name("afterwards");
      v1::BarrierResponse response;
      const grpc::Status status = stubs_->messages->Barrier(Context().get(), request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.result().outcome(), v1::ROUND_OUTCOME_RELEASED)
          << response.ShortDebugString();
    });
  }

  v1::StatsResponse Stats() {
    v1::StatsRequest request;
    *request.mutable_scope() = scopes_[0];
    v1::StatsResponse response;
    const grpc::Status status = stubs_->messages->Stats(Context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    // A parked call counts one here, though it is none of ours.
    return response;
  }

  template <typename Request>
  Request Of(int rank = 0) {
    Request request;
    *request.mutable_scope() = scopes_[rank];
    return request;
  }

  void ExpectInvalid(const grpc::Status& status, const std::string& field) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << field << ": " << status.error_code() << " " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(field));
    EXPECT_LT(status.error_message().size(), 2048);
  }

  grpc::Status Send(const v1::SendRequest& request) {
    v1::SendResponse response;
    return stubs_->messages->Send(Context().get(), request, &response);
  }
  grpc::Status Barrier(const v1::BarrierRequest& request) {
    v1::BarrierResponse response;
    return stubs_->messages->Barrier(Context().get(), request, &response);
  }
  grpc::Status Receive(const v1::ReceiveRequest& request) {
    v1::ReceiveResponse response;
    return stubs_->messages->Receive(Context().get(), request, &response);
  }
  grpc::Status Join(const v1::JoinRequest& request) {
    v1::JoinResponse response;
    return stubs_->groups->Join(Context().get(), request, &response);
  }
  grpc::Status Put(const v1::PutRequest& request) {
    v1::PutResponse response;
    return stubs_->store->Put(Context().get(), request, &response);
  }
  // Sends the parts in order and returns how it ended; `blob` when it went well.
  grpc::Status Upload(const std::vector<v1::UploadRequest>& parts, int64_t* blob = nullptr) {
    v1::UploadResponse response;
    const auto context = Context();
    const auto stream = stubs_->messages->Upload(context.get(), &response);
    for (const v1::UploadRequest& part : parts) {
      if (!stream->Write(part)) break;
    }
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    if (blob != nullptr) *blob = response.blob();
    return status;
  }
  // An upload of `data` in parts of 1000 bytes.
  std::vector<v1::UploadRequest> Parts(const std::string& data) {
    std::vector<v1::UploadRequest> parts;
    for (size_t offset = 0; offset < data.size(); offset += 1000) {
      v1::UploadRequest part;
      part.set_offset(offset);
      part.set_data(data.substr(offset, 1000));
      parts.push_back(part);
    }
    *parts[0].mutable_scope() = scopes_[0];
    parts[0].set_size_bytes(data.size());
    parts[0].set_crc32(crc32(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
    return parts;
  }

  CoordinatorProcess coordinator_{{}};
  std::unique_ptr<Stubs> stubs_;
  v1::Scope scopes_[kWorldSize];
  v1::StatsResponse before_;
};

TEST_F(BadInputTest, RanksOutOfBounds) {
  for (const int32_t rank : {-1, kWorldSize, kHuge, std::numeric_limits<int32_t>::min()}) {
    SCOPED_TRACE(rank);
    v1::SendRequest send = Of<v1::SendRequest>();
    send.set_destination(rank);
    send.mutable_payload()->set_inline_("x");
    ExpectInvalid(Send(send), "destination");
    v1::ReceiveRequest receive = Of<v1::ReceiveRequest>();
    receive.set_source(rank);
    ExpectInvalid(Receive(receive), "source");
    v1::BroadcastRequest broadcast = Of<v1::BroadcastRequest>();
    broadcast.set_root(rank);
    v1::BroadcastResponse broadcast_response;
    ExpectInvalid(stubs_->messages->Broadcast(Context().get(), broadcast, &broadcast_response),
                  "root");
    v1::GatherRequest gather = Of<v1::GatherRequest>();
    gather.set_root(rank);
    gather.mutable_payload()->set_inline_("x");
    v1::GatherResponse gather_response;
    ExpectInvalid(stubs_->messages->Gather(Context().get(), gather, &gather_response), "root");
    v1::JoinRequest join = testing::JoinRequestOf("group", 0, kWorldSize);
    join.set_member("stranger");
    join.set_rank(rank);
    ExpectInvalid(Join(join), "rank");
    v1::ProposeViewRequest propose = Of<v1::ProposeViewRequest>();
    propose.add_remove()->set_first(rank);
    propose.mutable_remove(0)->set_last(rank);
    v1::ProposeViewResponse propose_response;
    ExpectInvalid(stubs_->groups->ProposeView(Context().get(), propose, &propose_response),
                  "remove");
  }
  v1::SendRequest to_itself = Of<v1::SendRequest>();
  to_itself.set_destination(0);
  to_itself.mutable_payload()->set_inline_("x");
  ExpectInvalid(Send(to_itself), "itself");
}

TEST_F(BadInputTest, ParticipantsThatAreNoneOfThisGroup) {
  const std::vector<std::pair<int32_t, int32_t>> ranges[] = {
      {{-1, 1}}, {{0, kHuge}}, {{2, 1}}, {{0, kWorldSize}}, {{1, 2}}, {{0, 1}, {1, 2}, {-5, -5}}};
  for (const auto& list : ranges) {
    v1::BarrierRequest request = Of<v1::BarrierRequest>();
    for (const auto& [first, last] : list) {
      v1::RankRange& range = *request.mutable_round()->add_participants();
      range.set_first(first);
      range.set_last(last);
    }
    ExpectInvalid(Barrier(request), "participant");
  }
  // A million ranges of one rank each: refused or taken as one rank, but soon.
  v1::BarrierRequest request = Of<v1::BarrierRequest>();
  request.mutable_round()->set_name("many");
  request.mutable_round()->mutable_wait()->set_nanos(1000000);
  for (int index = 0; index < 300000; ++index) request.mutable_round()->add_participants();
  const grpc::Status status = Barrier(request);
  EXPECT_THAT(status.error_code(), AnyOf(grpc::StatusCode::OK, grpc::StatusCode::INVALID_ARGUMENT));
}

TEST_F(BadInputTest, NumbersOutOfBounds) {
  v1::BarrierRequest barrier = Of<v1::BarrierRequest>();
  barrier.mutable_round()->set_number(-1);
  ExpectInvalid(Barrier(barrier), "number");
  barrier.mutable_round()->set_number(std::numeric_limits<int64_t>::max());
  barrier.mutable_round()->mutable_wait()->set_nanos(1000000);
  EXPECT_FALSE(Barrier(barrier).ok()) << "a number far ahead would never be reached";

  barrier = Of<v1::BarrierRequest>();
  barrier.mutable_round()->mutable_wait()->set_seconds(-1);
  ExpectInvalid(Barrier(barrier), "wait");
  barrier.mutable_round()->mutable_wait()->set_seconds(std::numeric_limits<int64_t>::max());
  ExpectInvalid(Barrier(barrier), "wait");
  barrier.mutable_round()->mutable_wait()->set_seconds(1);
  barrier.mutable_round()->mutable_wait()->set_nanos(-5);
  ExpectInvalid(Barrier(barrier), "wait");

  for (const int32_t count : {-1, 0, kHuge}) {
    v1::JoinRequest join = testing::JoinRequestOf("other", 0, 2);
    join.mutable_spec()->set_max_members(count);
    join.mutable_spec()->set_min_members(count);
    const grpc::Status status = Join(join);
    EXPECT_THAT(status.error_code(),
                AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::RESOURCE_EXHAUSTED));
    EXPECT_THAT(status.error_message(), HasSubstr("members"));
  }
  v1::JoinRequest join = testing::JoinRequestOf("other", 0, 2);
  join.mutable_spec()->set_min_members(3);
  ExpectInvalid(Join(join), "min_members");
  join = testing::JoinRequestOf("other", 0, 2);
  join.set_incarnation(0);
  ExpectInvalid(Join(join), "incarnation");
  join = testing::JoinRequestOf("other", 0, 2);
  join.mutable_spec()->mutable_lease()->set_seconds(-3);
  ExpectInvalid(Join(join), "lease");
  join = testing::JoinRequestOf("other", 0, 2);
  join.mutable_spec()->set_parameters_digest(std::string(65, 'd'));
  ExpectInvalid(Join(join), "parameters_digest");

  v1::GetRequest get = Of<v1::GetRequest>();
  for (int index = 0; index < 1001; ++index) get.add_keys(absl::StrCat("key", index));
  v1::GetResponse get_response;
  ExpectInvalid(stubs_->store->Get(Context().get(), get, &get_response), "keys");
  for (const int32_t size : {-1, 1001, kHuge}) {
    v1::RangeRequest range = Of<v1::RangeRequest>();
    range.set_page_size(size);
    v1::RangeResponse range_response;
    ExpectInvalid(stubs_->store->Range(Context().get(), range, &range_response), "page_size");
  }
  v1::WatchGroupRequest watch = Of<v1::WatchGroupRequest>();
  watch.set_from_revision(-1);
  const auto context = Context();
  const auto stream = stubs_->groups->WatchGroup(context.get(), watch);
  v1::WatchGroupResponse event;
  EXPECT_FALSE(stream->Read(&event));
  ExpectInvalid(stream->Finish(), "from_revision");
}

TEST_F(BadInputTest, UnknownEnumValues) {
  v1::VoteRequest vote = Of<v1::VoteRequest>();
  for (const int op : {0, 77, -3}) {
    vote.set_op(static_cast<v1::VoteOp>(op));
    v1::VoteResponse response;
    ExpectInvalid(stubs_->groups->Vote(Context().get(), vote, &response), "op");
  }
  v1::JoinRequest join = testing::JoinRequestOf("other", 0, 2);
  join.mutable_spec()->set_fate(static_cast<v1::Fate>(99));
  ExpectInvalid(Join(join), "fate");
  v1::ProposeViewRequest propose = Of<v1::ProposeViewRequest>();
  propose.set_silent(static_cast<v1::SilentPolicy>(99));
  v1::ProposeViewResponse propose_response;
  ExpectInvalid(stubs_->groups->ProposeView(Context().get(), propose, &propose_response), "silent");
  v1::ReportInitRequest init = Of<v1::ReportInitRequest>();
  init.set_name("weights");
  init.set_phase(static_cast<v1::InitPhase>(99));
  v1::ReportInitResponse init_response;
  ExpectInvalid(stubs_->unique_ids->ReportInit(Context().get(), init, &init_response), "phase");
}

TEST_F(BadInputTest, NamesThatAreTooLongOrNoNames) {
  for (const std::string& name :
       {std::string(10000, 'n'), std::string(129, 'n'), std::string("a b"),
        std::string("new\nline"), std::string("nul\0", 4), std::string("\xc3\xa4")}) {
    SCOPED_TRACE(name.substr(0, 20));
    v1::SendRequest send = Of<v1::SendRequest>();
    send.set_destination(1);
    send.set_tag(name);
    ExpectInvalid(Send(send), "tag");
    v1::BarrierRequest barrier = Of<v1::BarrierRequest>();
    barrier.mutable_round()->set_name(name);
    ExpectInvalid(Barrier(barrier), "name");
    v1::JoinRequest join = testing::JoinRequestOf(name, 0, 2);
    ExpectInvalid(Join(join), "group");
    join = testing::JoinRequestOf("other", 0, 2);
    join.set_member(name);
    ExpectInvalid(Join(join), "member");
    join = testing::JoinRequestOf("other", 0, 2);
    join.mutable_scope()->set_tenant(name);
    ExpectInvalid(Join(join), "tenant");
    v1::QueuePushRequest push = Of<v1::QueuePushRequest>();
    push.set_queue(name);
    v1::QueuePushResponse push_response;
    ExpectInvalid(stubs_->store->QueuePush(Context().get(), push, &push_response), "queue");
    v1::PublishRequest publish = Of<v1::PublishRequest>();
    publish.set_name(name);
    publish.add_ids("id");
    v1::PublishResponse publish_response;
    ExpectInvalid(stubs_->unique_ids->Publish(Context().get(), publish, &publish_response), "name");
  }
  for (const std::string& key : {std::string(), std::string(1025, 'k'), std::string("nul\0", 4)}) {
    v1::PutRequest put = Of<v1::PutRequest>();
    put.set_key(key);
    ExpectInvalid(Put(put), "key");
  }
  v1::LeaveRequest leave = Of<v1::LeaveRequest>();
  leave.set_reason(std::string(513, 'r'));
  v1::LeaveResponse leave_response;
  ExpectInvalid(stubs_->groups->Leave(Context().get(), leave, &leave_response), "reason");
  v1::ReportErrorRequest report = Of<v1::ReportErrorRequest>();
  report.set_detail(std::string(1025, 'd'));
  v1::ReportErrorResponse report_response;
  ExpectInvalid(stubs_->groups->ReportError(Context().get(), report, &report_response), "detail");
}

TEST_F(BadInputTest, UniqueIdsOutOfBounds) {
  v1::PublishResponse response;
  v1::PublishRequest none = Of<v1::PublishRequest>();
  none.set_name("weights");
  ExpectInvalid(stubs_->unique_ids->Publish(Context().get(), none, &response), "ids");
  v1::PublishRequest many = none;
  for (int index = 0; index < 65; ++index) many.add_ids("id");
  ExpectInvalid(stubs_->unique_ids->Publish(Context().get(), many, &response), "ids");
  v1::PublishRequest empty = none;
  empty.add_ids("");
  ExpectInvalid(stubs_->unique_ids->Publish(Context().get(), empty, &response), "ids");
  v1::PublishRequest large = none;
  large.add_ids(std::string(257, 'i'));
  ExpectInvalid(stubs_->unique_ids->Publish(Context().get(), large, &response), "ids");
}

TEST_F(BadInputTest, SessionsThatAreNone) {
  for (const std::string& session : {std::string(), std::string("short"), std::string(15, 's'),
                                     std::string(17, 's'), std::string(100000, 's')}) {
    v1::BarrierRequest barrier = Of<v1::BarrierRequest>();
    barrier.mutable_scope()->set_session(session);
    ExpectInvalid(Barrier(barrier), "session");
  }
  v1::BarrierRequest stranger = Of<v1::BarrierRequest>();
  stranger.mutable_scope()->set_session(std::string(16, 's'));
  EXPECT_EQ(Barrier(stranger).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::BarrierRequest operation = Of<v1::BarrierRequest>();
  operation.mutable_scope()->set_operation_id("short");
  ExpectInvalid(Barrier(operation), "operation_id");
  v1::BarrierRequest future = Of<v1::BarrierRequest>();
  future.mutable_scope()->set_generation(-1);
  ExpectInvalid(Barrier(future), "generation");
  v1::SendRequest unscoped;
  ExpectInvalid(Send(unscoped), "group");
}

TEST_F(BadInputTest, PayloadsThatAreTooLargeAreRefusedByTheNameOfTheLimit) {
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.mutable_payload()->set_inline_(std::string((1 << 20) + 1, 'x'));
  grpc::Status status = Send(send);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_inline_bytes"));

  v1::AllGatherRequest gather = Of<v1::AllGatherRequest>();
  gather.mutable_payload()->set_inline_(std::string((1 << 20) + 1, 'x'));
  v1::AllGatherResponse gather_response;
  status = stubs_->messages->AllGather(Context().get(), gather, &gather_response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_inline_bytes"));

  v1::PutRequest put = Of<v1::PutRequest>();
  put.set_key("key");
  put.set_value(std::string((1 << 20) + 1, 'x'));
  status = Put(put);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_value_bytes"));

  // Beyond what the transport takes, before anything of ours sees it.
  send.mutable_payload()->set_inline_(std::string(8 << 20, 'x'));
  EXPECT_EQ(Send(send).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);

  v1::UploadRequest upload = Of<v1::UploadRequest>();
  upload.set_size_bytes(int64_t{1} << 50);
  upload.set_data("x");
  status = Upload({upload});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_object_bytes"));
}

TEST_F(BadInputTest, EmptyPayloadsAreLegalAndArrive) {
  for (const bool set : {true, false}) {
    v1::SendRequest send = Of<v1::SendRequest>(1);
    send.set_destination(0);
    if (set) send.mutable_payload()->set_inline_("");
    const grpc::Status sent = Send(send);
    if (!set && !sent.ok()) {
      ExpectInvalid(sent, "payload");
      continue;
    }
    EXPECT_TRUE(sent.ok()) << sent.error_message();
    v1::ReceiveResponse response;
    v1::ReceiveRequest receive = Of<v1::ReceiveRequest>();
    receive.set_source(1);
    EXPECT_TRUE(stubs_->messages->Receive(Context().get(), receive, &response).ok());
    EXPECT_EQ(response.outcome(), v1::RECEIVE_OUTCOME_RECEIVED);
    EXPECT_EQ(response.payload().inline_(), "");
  }
}

TEST_F(BadInputTest, BlobsThatDoNotExist) {
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.mutable_payload()->mutable_blob()->set_blob(12345);
  send.mutable_payload()->mutable_blob()->set_size_bytes(10);
  const grpc::Status status = Send(send);
  EXPECT_THAT(status.error_code(),
              AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND));
  EXPECT_THAT(status.error_message(), HasSubstr("blob"));
  for (const int64_t offset : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    v1::DownloadRequest download = Of<v1::DownloadRequest>();
    download.set_blob(12345);
    download.set_offset(offset);
    const auto context = Context();
    const auto stream = stubs_->messages->Download(context.get(), download);
    v1::DownloadResponse part;
    EXPECT_FALSE(stream->Read(&part));
    EXPECT_FALSE(stream->Finish().ok());
  }
}

TEST_F(BadInputTest, UploadsThatAreNotWhatTheySaid) {
  const std::string data(3500, 'u');
  ExpectInvalid(Upload({}), "at least one part");
  std::vector<v1::UploadRequest> parts = Parts(data);
  parts.pop_back();
  ExpectInvalid(Upload(parts), "3500 were announced");
  parts = Parts(data);
  parts[2].set_offset(1500);
  ExpectInvalid(Upload(parts), "offset");
  parts = Parts(data);
  parts.erase(parts.begin() + 2);
  ExpectInvalid(Upload(parts), "offset");
  parts = Parts(data);
  parts[1].set_offset(-1);
  ExpectInvalid(Upload(parts), "offset");
  parts = Parts(data);
  parts[0].set_crc32(parts[0].crc32() + 1);
  ExpectInvalid(Upload(parts), "crc32");
  parts = Parts(data);
  parts[0].set_size_bytes(3000);
  ExpectInvalid(Upload(parts), "announced 3000");
  parts = Parts(data);
  parts[0].set_size_bytes(-1);
  ExpectInvalid(Upload(parts), "size_bytes");
  parts = Parts(data);
  parts[0].mutable_scope()->set_session("short");
  ExpectInvalid(Upload(parts), "session");

  // Cut off in the middle by the caller: what had come is given up.
  v1::UploadResponse response;
  const auto context = Context();
  const auto stream = stubs_->messages->Upload(context.get(), &response);
  stream->Write(Parts(data)[0]);
  context->TryCancel();
  EXPECT_FALSE(stream->Finish().ok());

  // The same path does work, and frees what it held once the reader has it.
  int64_t blob = 0;
  const grpc::Status uploaded = Upload(Parts(data), &blob);
  ASSERT_TRUE(uploaded.ok()) << uploaded.error_message();
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.mutable_payload()->mutable_blob()->set_blob(blob);
  send.mutable_payload()->mutable_blob()->set_size_bytes(data.size());
  send.mutable_payload()->mutable_blob()->set_crc32(Parts(data)[0].crc32());
  ASSERT_TRUE(Send(send).ok()) << Send(send).error_message();
  v1::ReceiveRequest receive = Of<v1::ReceiveRequest>(1);
  receive.set_source(0);
  v1::ReceiveResponse received;
  ASSERT_TRUE(stubs_->messages->Receive(Context().get(), receive, &received).ok());
  EXPECT_EQ(received.payload().inline_(), data);
}

// Bytes that are no message, and messages with something flipped, to each method.
TEST_F(BadInputTest, GarbageAsAMessage) {
  std::mt19937_64 random(testing::TestSeed());
  grpc::GenericStub generic(stubs_->channel);
  std::vector<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::JoinRequest::descriptor()->file(), v1::SendRequest::descriptor()->file(),
        v1::PutRequest::descriptor()->file(), v1::PublishRequest::descriptor()->file(),
        v1::LimitsRequest::descriptor()->file()}) {
    for (int index = 0; index < file->service_count(); ++index) {
      const google::protobuf::ServiceDescriptor* const service = file->service(index);
      for (int number = 0; number < service->method_count(); ++number) {
        methods.push_back(
            absl::StrCat("/", service->full_name(), "/", service->method(number)->name()));
      }
    }
  }
  EXPECT_GE(methods.size(), 43);
  const auto call = [&](const std::string& method, const std::string& bytes) {
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    const auto context = Context(absl::Seconds(2));
    std::promise<grpc::Status> done;
    generic.UnaryCall(context.get(), method, {}, &request, &response,
                      [&done](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  };
  for (const std::string& method : methods) {
    SCOPED_TRACE(method);
    for (int round = 0; round < 5; ++round) {
      // A first byte of 0x07 is a wire type that does not exist: never a message.
      std::string bytes(1, '\x07');
      const size_t size = 1 + random() % 300;
      while (bytes.size() < size) bytes.push_back(static_cast<char>(random()));
      EXPECT_FALSE(call(method, bytes).ok());
    }
  }
}

// Valid messages with random bytes changed: any answer is right, but for a dead server, INTERNAL or
// UNKNOWN.
TEST_F(BadInputTest, MessagesWithFlippedBytes) {
  std::mt19937_64 random(testing::TestSeed());
  grpc::GenericStub generic(stubs_->channel);
  v1::BarrierRequest barrier = Of<v1::BarrierRequest>();
  barrier.mutable_round()->set_name("flip");
  barrier.mutable_round()->mutable_wait()->set_nanos(1000000);
  barrier.mutable_round()->add_participants()->set_last(1);
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.set_tag("flip");
  send.mutable_payload()->set_inline_("value");
  v1::JoinRequest join = testing::JoinRequestOf("group", 1, kWorldSize);
  const std::pair<std::string, std::string> samples[] = {
      {"/cohort.v1.MessagingService/Barrier", barrier.SerializeAsString()},
      {"/cohort.v1.MessagingService/Stats", send.SerializeAsString()},
      {"/cohort.v1.GroupService/GetGroup", join.SerializeAsString()},
      {"/cohort.v1.StoreService/Range", barrier.SerializeAsString()},
  };
  for (const auto& [method, sample] : samples) {
    for (int round = 0; round < 200; ++round) {
      std::string bytes = sample;
      for (int flips = 1 + random() % 3; flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      const grpc::Slice slice(bytes);
      const grpc::ByteBuffer request(&slice, 1);
      grpc::ByteBuffer response;
      const auto context = Context(absl::Milliseconds(500));
      std::promise<grpc::Status> done;
      generic.UnaryCall(context.get(), method, {}, &request, &response,
                        [&done](grpc::Status status) { done.set_value(std::move(status)); });
      const grpc::Status status = done.get_future().get();
      ASSERT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      ASSERT_NE(status.error_code(), grpc::StatusCode::UNKNOWN) << status.error_message();
    }
  }
  // Rounds under changed names may have been opened and ended: those count, and are allowed to.
  before_ = Stats();
}

}  // namespace
}  // namespace cohort
