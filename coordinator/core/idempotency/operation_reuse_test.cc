// An operation id that comes again with another request: refused, and both requests are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

PutCall Put(const std::string& key, const std::string& value) {
  PutCall put;
  put.key = key;
  put.value = value;
  return put;
}

class OperationReuseTest : public ::testing::Test {
 protected:
  CallId Make(CallBody body) {
    return h_.As(members_[0], std::move(body), absl::Seconds(1), Id128{0xf, operation_});
  }
  // `first` and its repeat succeed; `other`, under the same id, is refused; also after a restart.
  void ExpectRefused(const CallBody& first, const CallBody& other, const char* first_text,
                     const char* other_text) {
    ++operation_;
    SCOPED_TRACE(other_text);
    EXPECT_TRUE(h_.StatusOf(Make(first)).ok());
    for (bool restarted : {false, true}) {
      if (restarted) h_.Restart();
      const CallId repeat = Make(first);
      EXPECT_TRUE(h_.StatusOf(repeat).ok()) << h_.StatusOf(repeat);
      const absl::Status status = h_.StatusOf(Make(other));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("operation_id"), HasSubstr(first_text), HasSubstr(other_text)));
    }
  }

  CoreHarness h_;
  std::vector<TestMember> members_ = h_.Form(2);
  uint64_t operation_ = 0;
};

TEST_F(OperationReuseTest, WithAnotherPayload) {
  ExpectRefused(Put("k", "one"), Put("k", "other"), "a put (its revision",
                "put of key \"k\" (5 bytes)");
  ExpectRefused(Put("k", "one"), Put("k2", "one"), "a put (its revision", "put of key \"k2\"");
  ExpectRefused(Send(1, "0123456789abcdef0"), Send(1, "0123456789abcdef1"), "a send (its sequence",
                "to rank 1");
  ExpectRefused(Send(1, "x", "a"), Send(1, "x", "b"), "a send", "tag \"b\"");
  ExpectRefused(AddCall{"n", 1}, AddCall{"n", 2}, "an add (its value: 1)", "add of 2 to key \"n\"");
  ExpectRefused(AppendCall{"log", "a"}, AppendCall{"log", "b"}, "an append (to 1 bytes)",
                "append to key \"log\"");
  ExpectRefused(DeleteCall{"k", false}, DeleteCall{"k", true}, "a delete",
                "all keys that begin with \"k\"");
  ExpectRefused(QueuePushCall{"q", "a", {}}, QueuePushCall{"q", "b", {}}, "a push",
                "push to queue \"q\"");
  ExpectRefused(CancelRoundCall{"step", 0, "why"}, CancelRoundCall{"other", 0, "why"},
                "a cancel of a barrier", "cancel of barrier \"other\"");
}

TEST_F(OperationReuseTest, WithAnotherMethod) {
  ExpectRefused(Put("k", "v"), AddCall{"n", 1}, "a put (its revision", "add of 1 to key \"n\"");
  ExpectRefused(Send(1, "x"), Put("k", "x"), "a send (its sequence", "put of key \"k\"");
  ExpectRefused(AddCall{"n", 1}, CancelRoundCall{"step", 0, ""}, "an add", "cancel of barrier");
  ExpectRefused(Put("k", "v"), QueuePopCall{"q"}, "a put", "a pop of queue \"q\"");
}

TEST_F(OperationReuseTest, RefusesNoRepeatWhoseTimesDiffer) {
  SendCall send = Send(1, "x");
  send.expiration = absl::Seconds(10);
  ++operation_;
  const CallId first = Make(send);
  send.expiration = absl::Seconds(9);
  EXPECT_EQ(h_.Get<SendReply>(Make(send))->sequence, h_.Get<SendReply>(first)->sequence);
}

TEST_F(OperationReuseTest, AReceiveFromAnotherMailboxIsRejected) {
  h_.As(members_[1], Send(0, "x", "a"));
  ++operation_;
  const CallId first = Make(Receive(1, "a"));
  ASSERT_NE(h_.Get<ReceiveReply>(first), nullptr);
  EXPECT_EQ(h_.Get<ReceiveReply>(Make(Receive(1, "a")))->payload.bytes(), "x");
  const absl::Status status = h_.StatusOf(Make(Receive(1, "b")));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("tag \"a\""), HasSubstr("tag \"b\"")));
}

TEST_F(OperationReuseTest, AnotherViewProposalIsRejected) {
  ++operation_;
  const CallId first = Make(ProposeViewCall{{{1, 1}}, {}, false});
  EXPECT_EQ(h_.Get<ViewReply>(first)->outcome, ViewReply::Outcome::kCommitted);
  const absl::Status status = h_.StatusOf(Make(ProposeViewCall{{}, {}, true}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace cohort::coordinator
