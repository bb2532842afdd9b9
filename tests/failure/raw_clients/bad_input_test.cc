// Requests that no Cohort client sends: the coordinator answers each with an error that names the
// field, keeps nothing of it, and goes on.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/bad_input_test_base.h"

namespace cohort {
namespace {

using BadInputTest = BadInputTestBase;
using ::testing::AnyOf;
using testing::Context;
using ::testing::HasSubstr;

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

// The other members wait in the round, so a root that is no rank ends it for all.
TEST_F(BadInputTest, RootsOutOfBounds) {
  for (const int32_t rank :
       {-1, kHuge, std::numeric_limits<int32_t>::min(), kWorldSize, kWorldSize + 1}) {
    v1::BroadcastRequest broadcast = Of<v1::BroadcastRequest>();
    broadcast.set_root(rank);
    v1::BroadcastResponse broadcast_response;
    EXPECT_TRUE(stubs_->messages->Broadcast(Context().get(), broadcast, &broadcast_response).ok());
    v1::GatherRequest gather = Of<v1::GatherRequest>();
    gather.set_root(rank);
    gather.mutable_payload()->set_inline_("x");
    v1::GatherResponse gather_response;
    EXPECT_TRUE(stubs_->messages->Gather(Context().get(), gather, &gather_response).ok());
    for (const v1::RoundResult& result : {broadcast_response.result(), gather_response.result()}) {
      EXPECT_EQ(result.outcome(), v1::ROUND_OUTCOME_MISMATCH);
      EXPECT_THAT(result.reason(), rank == std::numeric_limits<int32_t>::min()
                                       ? HasSubstr("the root is no number")
                                       : HasSubstr(absl::StrCat("root ", rank)));
    }
  }
  before_ = Stats();  // the name of the rounds stays
}

// Ranks that the group does not have end the round for all, as a root does.
TEST_F(BadInputTest, ParticipantsOutsideOfTheGroup) {
  const std::vector<std::pair<int32_t, int32_t>> ranges[] = {
      {{-1, 1}}, {{0, kHuge}}, {{2, 1}}, {{0, kWorldSize}}, {{1, 2}}, {{0, 1}, {1, 2}, {-5, -5}}};
  for (const auto& list : ranges) {
    v1::BarrierRequest request = Of<v1::BarrierRequest>();
    for (const auto& [first, last] : list) {
      v1::RankRange& range = *request.mutable_round()->add_participants();
      range.set_first(first);
      range.set_last(last);
    }
    v1::BarrierResponse response;
    const grpc::Status status =
        stubs_->messages->Barrier(Context().get(), request, &response);
    if (!status.ok()) {
      ExpectInvalid(status, "participant");
      continue;
    }
    EXPECT_EQ(response.result().outcome(), v1::ROUND_OUTCOME_MISMATCH);
    EXPECT_THAT(response.result().reason(), HasSubstr("participant"));
  }
  before_ = Stats();  // the name of the rounds stays
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

TEST_F(BadInputTest, UnknownSessions) {
  for (const std::string& session : {std::string(), std::string("short"), std::string(15, 's'),
                                     std::string(17, 's'), std::string(100000, 's')}) {
    v1::BarrierRequest barrier = Of<v1::BarrierRequest>();
    barrier.mutable_scope()->set_session(session);
    ExpectInvalid(Barrier(barrier), "session");
  }
  v1::BarrierRequest unknown = Of<v1::BarrierRequest>();
  unknown.mutable_scope()->set_session(std::string(16, 's'));
  EXPECT_EQ(Barrier(unknown).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::BarrierRequest operation = Of<v1::BarrierRequest>();
  operation.mutable_scope()->set_operation_id("short");
  ExpectInvalid(Barrier(operation), "operation_id");
  v1::BarrierRequest future = Of<v1::BarrierRequest>();
  future.mutable_scope()->set_generation(-1);
  ExpectInvalid(Barrier(future), "generation");
  v1::SendRequest unscoped;
  ExpectInvalid(Send(unscoped), "group");
}

}  // namespace
}  // namespace cohort
