// One file, though long: its cases share the set-up of an answer.
#include "coordinator/service/codec/encode.h"

#include <zlib.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "coordinator/core/interface/tenant_accounts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

class EncodeTest : public testing::Test {
 protected:
  EncodeTest() {
    key_.tenant = "default";
    key_.group = "job";
    context_.now = absl::FromUnixSeconds(1000);
    context_.server_incarnation = 77;
    context_.max_inline_bytes = 1000;
    context_.max_message_bytes = 4000;
    context_.max_blob_bytes = 1 << 20;
    context_.key = &key_;
    context_.session.low = 5;
    context_.blobs = &blobs_;
    context_.cache = &cache_;
  }

  template <typename Response>
  Response Encoded(ReplyBody body) {
    Reply reply;
    reply.body = std::move(body);
    message_ = MessageBytes();
    EXPECT_TRUE(Encode(reply, context_, &message_).ok());
    Response response;
    EXPECT_TRUE(response.ParseFromString(message_.Flatten()));
    EXPECT_EQ(message_.size(), message_.Flatten().size());
    return response;
  }
  // Answers of a tenant with a limit of 10,000 bytes are charged from now on. Returns its account.
  std::shared_ptr<MemoryAccount> ChargeTenant() {
    key_.tenant = "t";
    limits_.max_tenant_bytes_held = 10000;
    context_.tenants = &tenants_;
    context_.limits = &limits_;
    return tenants_.Of("t");
  }
  static std::shared_ptr<RoundEnd> EndWith(const std::vector<std::string>& values) {
    auto end = std::make_shared<RoundEnd>();
    end->kind = RoundKind::kAllGather;
    end->number = 4;
    end->next_number = 5;
    end->receipt = 9;
    for (const std::string& value : values) end->values.emplace_back(value, nullptr);
    return end;
  }

  GroupKey key_;
  Limits limits_;
  TenantAccounts tenants_{std::make_shared<MemoryAccount>()};
  OutgoingBlobs blobs_;
  EncodeCache cache_;
  EncodeContext context_;
  MessageBytes message_;
};

TEST_F(EncodeTest, ALateMemberGetsAnErrorThatSaysSo) {
  auto end = EndWith({});
  end->outcome = RoundOutcome::kTimedOut;
  EXPECT_FALSE(Encoded<v1::BarrierResponse>(RoundReply{end, false, Payload()}).result().late());
  end = EndWith({});
  end->outcome = RoundOutcome::kTimedOut;
  end->late = true;
  EXPECT_TRUE(Encoded<v1::BarrierResponse>(RoundReply{end, false, Payload()}).result().late());
}

TEST_F(EncodeTest, ValuesAreSerialisedOnceForAll) {
  const auto end = EndWith({"a", "", std::string(200, 'c')});
  const void* first = nullptr;
  for (int member = 0; member < 3; ++member) {
    const auto response =
        Encoded<v1::AllGatherResponse>(RoundReply{end, /*with_values=*/true, Payload()});
    EXPECT_EQ(response.result().outcome(), v1::ROUND_OUTCOME_RELEASED);
    EXPECT_EQ(response.result().number(), 4);
    EXPECT_EQ(response.result().receipt(), 9);
    EXPECT_EQ(response.values().inline_(), "a" + std::string(200, 'c'));
    EXPECT_THAT(response.values().sizes_bytes(), testing::ElementsAre(1, 0, 200));
    const void* bytes = message_.pieces().back().bytes.data();
    if (member == 0) first = bytes;
    EXPECT_EQ(bytes, first);
  }
  EXPECT_FALSE(
      Encoded<v1::GatherResponse>(RoundReply{end, /*with_values=*/false, Payload()}).has_values());
}

// Answers of several operations leave in one batch.
TEST_F(EncodeTest, EachResultOfABatchHasItsOwnValues) {
  const std::vector<std::string> values = {"a", "bb", std::string(2000, 'c')};
  for (const bool with_values : {true, false, true}) {
    for (const std::string& value : values) {
      const auto end = EndWith({value});
      end->number = static_cast<int64_t>(value.size());
      const auto response = Encoded<v1::AllGatherResponse>(RoundReply{end, with_values, Payload()});
      EXPECT_EQ(response.result().number(), end->number);
      EXPECT_EQ(response.has_values(), with_values);
      if (with_values) {
        EXPECT_THAT(response.values().sizes_bytes(), testing::ElementsAre(value.size()));
      }
    }
    for (const char* const name : {"m", "n"}) {
      JoinReply join;
      auto members = std::make_shared<std::vector<MemberInfo>>();
      members->emplace_back().name = name;
      join.members = members;
      const auto joined = Encoded<v1::JoinResponse>(join);
      ASSERT_EQ(joined.members_size(), 1);
      EXPECT_EQ(joined.members(0).name(), name);
    }
  }
}

// Serialised once, it is charged once, until the last member's answer has been sent.
TEST_F(EncodeTest, SharedBytesOfAnswersAreChargedUntilTheLastIsGone) {
  const auto account = ChargeTenant();
  context_.max_inline_bytes = 4000;
  const auto end = EndWith({std::string(1500, 'a'), std::string(1500, 'b')});
  std::vector<MessageBytes> answers;
  for (int member = 0; member < 3; ++member) {
    const auto response = Encoded<v1::AllGatherResponse>(RoundReply{end, true, Payload()});
    EXPECT_EQ(response.values().inline_().size(), 3000u);
    answers.push_back(message_);
  }
  EXPECT_GE(account->held(MemoryKind::kOutput), 3000);
  EXPECT_LT(account->held(MemoryKind::kOutput), 6000);
  cache_ = EncodeCache();
  message_ = MessageBytes();
  answers.resize(1);
  EXPECT_GE(account->held(MemoryKind::kOutput), 3000);
  answers.clear();
  EXPECT_EQ(account->held(), 0);

  JoinReply join;
  auto members = std::make_shared<std::vector<MemberInfo>>();
  for (int rank = 0; rank < 100; ++rank) {
    members->emplace_back().name = absl::StrCat("a-member-of-some-length-", rank);
  }
  join.members = members;
  EXPECT_EQ(Encoded<v1::JoinResponse>(join).members_size(), 100);
  EXPECT_GT(account->held(MemoryKind::kOutput), 2000);
  cache_ = EncodeCache();
  message_ = MessageBytes();
  EXPECT_EQ(account->held(), 0);
}

TEST_F(EncodeTest, SharedBytesOfAnswersAreRefusedOverTheTenantsLimit) {
  const auto account = ChargeTenant();
  context_.max_inline_bytes = 4000;
  const SharedCharge others(*account, MemoryKind::kKeys, 8000);
  Reply reply;
  reply.body = RoundReply{EndWith({std::string(3000, 'a')}), true, Payload()};
  for (int member = 0; member < 2; ++member) {
    const absl::Status status = Encode(reply, context_, &message_);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("max_tenant_bytes_held is 10000"));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("for output"));
  }
  message_ = MessageBytes();
  cache_ = EncodeCache();
  EXPECT_EQ(account->held(), 8000);
  // A small result has room.
  const auto small = Encoded<v1::BarrierResponse>(RoundReply{EndWith({}), false, Payload()});
  EXPECT_EQ(small.result().number(), 4);
}

TEST_F(EncodeTest, LargeValuesBecomeOneBlobUntilAllHaveIt) {
  const auto end = EndWith({std::string(600, 'a'), std::string(600, 'b')});
  int64_t id = 0;
  for (int member = 0; member < 2; ++member) {
    const auto response = Encoded<v1::AllGatherResponse>(RoundReply{end, true, Payload()});
    EXPECT_THAT(response.values().sizes_bytes(), testing::ElementsAre(600, 600));
    if (member == 0) id = response.values().blob().blob();
    EXPECT_EQ(response.values().blob().blob(), id);
    const std::string all = std::string(600, 'a') + std::string(600, 'b');
    EXPECT_EQ(response.values().blob().crc32(),
              crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size()));
  }
  const auto found = [&] { return blobs_.Find(context_.now, key_, Id128(), id).ok(); };
  EXPECT_TRUE(found());
  blobs_.Acknowledge(key_, Id128{0, 1}, {8});
  blobs_.Acknowledge(key_, Id128{0, 1}, {9});
  blobs_.Acknowledge(key_, Id128{0, 1}, {9});  // once more by the same: the other has not got it
  EXPECT_TRUE(found());
  blobs_.Acknowledge(key_, Id128{0, 2}, {9});
  EXPECT_FALSE(found());
  EXPECT_EQ(blobs_.size_bytes(), 0);
}

TEST_F(EncodeTest, ABlobOfOneMemberIsNotForOthers) {
  ReceiveReply reply;
  reply.payload = Payload(std::string(1001, 'x'), nullptr);
  reply.receipt = 5;
  const auto response = Encoded<v1::ReceiveResponse>(reply);
  const int64_t id = response.payload().blob().blob();
  EXPECT_TRUE(OutgoingBlobs::IsOutgoing(id));
  EXPECT_EQ(response.payload().blob().size_bytes(), 1001);
  Id128 other;
  other.low = 6;
  EXPECT_FALSE(blobs_.Find(context_.now, key_, other, id).ok());
  GroupKey elsewhere = key_;
  elsewhere.group = "job2";
  EXPECT_FALSE(blobs_.Find(context_.now, elsewhere, context_.session, id).ok());
  blobs_.Acknowledge(key_, other, {5});  // another reader of the same round, say
  EXPECT_TRUE(blobs_.Find(context_.now, key_, context_.session, id).ok());
  EXPECT_FALSE(blobs_.Find(context_.now + OutgoingBlobs::kKept, key_, context_.session, id).ok());
}

// Found by fuzzing: a blob that was not fetched stayed for good if no large value followed.
TEST_F(EncodeTest, AnUnfetchedBlobIsFreedByAnyLaterCall) {
  blobs_.Issue(context_.now, key_, context_.session, 1, {Payload("large", nullptr)}, 0, 100);
  blobs_.FreeOld(context_.now + OutgoingBlobs::kKept - absl::Nanoseconds(1));
  EXPECT_EQ(blobs_.size_bytes(), 5);
  blobs_.FreeOld(context_.now + OutgoingBlobs::kKept);
  EXPECT_EQ(blobs_.size_bytes(), 0);
}

TEST_F(EncodeTest, EmptyValueAndNoValueDiffer) {
  ReceiveReply reply;
  reply.payload = Payload("", nullptr);
  EXPECT_EQ(Encoded<v1::ReceiveResponse>(reply).payload().where_case(), v1::Payload::kInline);
  reply.payload.reset();
  EXPECT_FALSE(Encoded<v1::ReceiveResponse>(reply).has_payload());
}

TEST_F(EncodeTest, MembersAreSharedBetweenJoins) {
  auto members = std::make_shared<std::vector<MemberInfo>>(2);
  (*members)[1].name = "m1";
  for (int rank = 0; rank < 2; ++rank) {
    JoinReply reply;
    reply.rank = rank;
    reply.members = members;
    const auto response = Encoded<v1::JoinResponse>(reply);
    EXPECT_EQ(response.rank(), rank);
    EXPECT_EQ(response.server_incarnation(), 77);
    ASSERT_EQ(response.members_size(), 2);
    EXPECT_EQ(response.members(1).name(), "m1");
  }
}

TEST_F(EncodeTest, ARangePageEndsBeforeItIsTooLarge) {
  RangeReply reply;
  for (int i = 0; i < 5; ++i) {
    KeyValue value;
    value.key = std::string(1, static_cast<char>('a' + i));
    value.value = Payload(std::string(400, 'v'), nullptr);
    reply.values.push_back(value);
  }
  reply.next = "e";
  const auto response = Encoded<v1::RangeResponse>(reply);
  EXPECT_EQ(response.values_size(), 2);
  EXPECT_EQ(response.next_page_token(), "b");
}

TEST_F(EncodeTest, AJoinReturnsTheLimitOfInlineValues) {
  EXPECT_EQ(Encoded<v1::JoinResponse>(JoinReply()).max_inline_bytes(), 1000);
}

TEST_F(EncodeTest, OperationsOnTensors) {
  WhoIsMissingReply reply;
  TensorWait& wait = reply.tensor_waits.emplace_back();
  wait.operation = "all_reduce #42";
  wait.age = absl::Seconds(12);
  wait.inside = {{0, 1}};
  wait.waited_for = {{2, 2}};
  RankReport& rank = reply.ranks.emplace_back();
  rank.rank = 2;
  rank.reported = absl::Seconds(1);
  rank.tensors.moves_tensors = true;
  rank.tensors.last.emplace().number = 41;
  reply.ranks.emplace_back().rank = 3;
  reply.unanswered = RankSet::FromRanges({{2, 3}});
  const auto response = Encoded<v1::WhoIsMissingResponse>(reply);
  EXPECT_TRUE(response.covers_tensors());
  ASSERT_EQ(response.tensor_waits_size(), 1);
  EXPECT_EQ(response.tensor_waits(0).operation(), "all_reduce #42");
  EXPECT_EQ(response.tensor_waits(0).age().seconds(), 12);
  EXPECT_EQ(response.tensor_waits(0).inside(0).last(), 1);
  EXPECT_EQ(response.tensor_waits(0).waited_for(0).first(), 2);
  ASSERT_EQ(response.ranks_size(), 2);
  EXPECT_EQ(response.ranks(0).reported().seconds(), 1);
  EXPECT_EQ(response.ranks(0).tensors().last().number(), 41);
  EXPECT_FALSE(response.ranks(0).tensors().has_open());
  EXPECT_FALSE(response.ranks(1).has_reported());
  EXPECT_EQ(response.unanswered(0).last(), 3);
}

TEST_F(EncodeTest, LargeValuesAreSharedByAllAnswersInTheirOrder) {
  const Payload large(std::string(100000, 'x'), nullptr);
  const auto key_value = [](const std::string& key, const Payload& value) {
    KeyValue result{key, value, 7, 3};
    result.expires_in = absl::Seconds(9);
    return result;
  };
  const std::vector<KeyValue> values = {
      key_value("a", Payload("1", nullptr)), key_value("b", large),
      key_value("c", Payload("2", nullptr)), key_value("d", large)};
  GetReply get;
  get.values = values;
  get.revision = 12;
  RangeReply range;
  range.values = values;
  range.revision = 12;
  range.next = "e";
  context_.max_inline_bytes = 150000;
  WatchKeysReply watch;
  for (const KeyValue& value : values) watch.events.push_back(KeyEvent{false, false, value});
  watch.events[2].deleted = watch.events[2].expired = true;
  watch.revision = 12;
  context_.max_message_bytes = 1 << 20;

  const auto check = [&](const v1::KeyValue& got, size_t i) {
    EXPECT_EQ(got.key(), values[i].key);
    EXPECT_EQ(got.value(), values[i].value.bytes());
    EXPECT_EQ(got.revision(), 7);
    EXPECT_EQ(got.created_revision(), 3);
    EXPECT_EQ(got.expires_in().seconds(), 9);
  };
  const auto got = Encoded<v1::GetResponse>(get);
  EXPECT_LT(message_.own_size(), 1000u) << "the large values are not copied";
  ASSERT_EQ(got.values_size(), 4);
  const auto page = Encoded<v1::RangeResponse>(range);
  EXPECT_LT(message_.own_size(), 1000u) << "the large values are not copied";
  ASSERT_EQ(page.values_size(), 3);
  EXPECT_EQ(page.next_page_token(), "c");
  EXPECT_EQ(page.revision(), 12);
  QueuePopReply pop;
  pop.found = true;
  pop.value = large;
  pop.sequence = 4;
  pop.receipt = 6;
  const auto popped = Encoded<v1::QueuePopResponse>(pop);
  EXPECT_LT(message_.own_size(), 1000u) << "the large value is not copied";
  EXPECT_TRUE(popped.found());
  EXPECT_EQ(popped.value(), large.bytes());
  EXPECT_EQ(popped.sequence(), 4);
  EXPECT_EQ(popped.receipt(), 6);
  const auto seen = Encoded<v1::WatchResponse>(watch);
  EXPECT_LT(message_.own_size(), 1000u) << "the large values are not copied";
  ASSERT_EQ(seen.events_size(), 4);
  for (size_t i = 0; i < values.size(); ++i) {
    check(got.values(static_cast<int>(i)), i);
    if (i < 3) check(page.values(static_cast<int>(i)), i);
    check(seen.events(static_cast<int>(i)).key_value(), i);
    EXPECT_EQ(seen.events(static_cast<int>(i)).deleted(), i == 2);
    EXPECT_EQ(seen.events(static_cast<int>(i)).expired(), i == 2);
  }
  EXPECT_EQ(got.revision(), 12);
  EXPECT_EQ(seen.revision(), 12);
}

TEST_F(EncodeTest, AGetHasTheLengthsOfQueues) {
  GetReply body;
  body.missing_keys = {"k"};
  body.queue_lengths = {{"q", 3}, {"empty", 0}};
  const auto response = Encoded<v1::GetResponse>(body);
  ASSERT_EQ(response.queue_lengths_size(), 2);
  EXPECT_EQ(response.queue_lengths(0).queue(), "q");
  EXPECT_EQ(response.queue_lengths(0).length(), 3);
  EXPECT_EQ(response.queue_lengths(1).queue(), "empty");
  EXPECT_EQ(response.missing_keys(0), "k");
}

TEST_F(EncodeTest, AGetThatIsTooLargeSaysSo) {
  GetReply body;
  body.values.resize(1);
  body.values[0].value = Payload(std::string(4001, 'v'), nullptr);
  Reply reply;
  reply.body = body;
  EXPECT_EQ(Encode(reply, context_, &message_).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(EncodeTest, ErrorsCarryTheirCause) {
  auto error = std::make_shared<ErrorContext>();
  error->group = "job";
  error->current_generation = 3;
  error->cause.kind = CauseKind::kLeaseExpired;
  error->cause.rank = 0;
  error->cause.at = context_.now - absl::Seconds(2);
  for (int i = 0; i < 400; ++i) error->cause.detail += "\xe2\x82\xac";
  Reply reply;
  reply.status = absl::AbortedError("broken");
  reply.context = error;
  const absl::Status status = EncodeStatus(reply, context_.now);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  v1::ErrorDetails details;
  const std::string bytes(*status.GetPayload(kErrorDetailsUrl));
  ASSERT_TRUE(details.ParseFromString(bytes));
  EXPECT_LE(bytes.size(), kMaxErrorDetailsBytes);
  EXPECT_EQ(details.current_generation(), 3);
  EXPECT_TRUE(details.cause().has_rank());
  EXPECT_EQ(details.cause().kind(), v1::CAUSE_KIND_LEASE_EXPIRED);
  EXPECT_EQ(details.cause().age().seconds(), 2);
}

}  // namespace
}  // namespace cohort::coordinator
