// One file, though long: each method is a table of the fields that are refused, beside those of the
// others, which share the helpers above them.
#include "coordinator/service/codec/decode.h"

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/service/codec/field_checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using testing::HasSubstr;

template <typename Request>
struct Case {
  const char* what;
  std::function<void(Request&)> change;
  absl::StatusCode code;  // kOk: still fine
  const char* text;       // part of the message
};

// Each case changes one field of a request that is fine without it.
template <typename Request>
void Check(const Request& base, const std::vector<Case<Request>>& cases,
           const DecodeContext& context = DecodeContext()) {
  {
    Request request = base;
    Call call;
    const absl::Status status = Decode(request, context, &call);
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const Case<Request>& one : cases) {
    Request request = base;
    one.change(request);
    Call call;
    const absl::Status status = Decode(request, context, &call);
    EXPECT_EQ(status.code(), one.code) << one.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.text)) << one.what;
  }
}

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

template <typename Request>
Request Base() {
  Request request;
  request.mutable_scope()->set_group("job");
  return request;
}

TEST(DecodeTest, Scope) {
  using R = v1::GetGroupRequest;
  Check<R>(
      Base<R>(),
      {{"no group", [](R& r) { r.mutable_scope()->clear_group(); }, kInvalid, "scope.group"},
       {"space", [](R& r) { r.mutable_scope()->set_group("a b"); }, kInvalid, "scope.group"},
       {"all signs", [](R& r) { r.mutable_scope()->set_group("aZ09._:/@+-"); }, kOk, ""},
       {"128", [](R& r) { r.mutable_scope()->set_group(std::string(128, 'a')); }, kOk, ""},
       {"129", [](R& r) { r.mutable_scope()->set_group(std::string(129, 'a')); }, kInvalid, "128"},
       {"umlaut", [](R& r) { r.mutable_scope()->set_group("\xc3\xa4"); }, kInvalid, "scope.group"},
       {"tenant", [](R& r) { r.mutable_scope()->set_tenant("a\n"); }, kInvalid, "scope.tenant"},
       {"generation", [](R& r) { r.mutable_scope()->set_generation(-1); }, kInvalid, "generation"},
       {"session 15", [](R& r) { r.mutable_scope()->set_session(std::string(15, 's')); }, kInvalid,
        "scope.session"},
       {"session 16", [](R& r) { r.mutable_scope()->set_session(std::string(16, 's')); }, kOk, ""},
       {"operation 17", [](R& r) { r.mutable_scope()->set_operation_id(std::string(17, 's')); },
        kInvalid, "scope.operation_id"},
       {"receipt 0", [](R& r) { r.mutable_scope()->add_acknowledged_receipts(0); }, kInvalid,
        "acknowledged_receipts"},
       {"4096 receipts",
        [](R& r) {
          for (int i = 0; i < 4096; ++i) r.mutable_scope()->add_acknowledged_receipts(i + 1);
        },
        kOk, ""},
       {"4097 receipts",
        [](R& r) {
          for (int i = 0; i < 4097; ++i) r.mutable_scope()->add_acknowledged_receipts(i + 1);
        },
        kInvalid, "4096"},
       {"abandoned 15",
        [](R& r) { r.mutable_scope()->add_abandoned_operations(std::string(15, 's')); }, kInvalid,
        "scope.abandoned_operations"},
       {"abandoned 0", [](R& r) { r.mutable_scope()->add_abandoned_operations(""); }, kInvalid,
        "scope.abandoned_operations"},
       {"1024 abandoned",
        [](R& r) {
          for (int i = 0; i < 1024; ++i) {
            r.mutable_scope()->add_abandoned_operations(std::string(16, 's'));
          }
        },
        kOk, ""},
       {"1025 abandoned",
        [](R& r) {
          for (int i = 0; i < 1025; ++i) {
            r.mutable_scope()->add_abandoned_operations(std::string(16, 's'));
          }
        },
        kInvalid, "1024"}});
}

TEST(DecodeTest, ScopeArrives) {
  auto request = Base<v1::GetGroupRequest>();
  request.mutable_scope()->set_session("0123456789abcdef");
  request.mutable_scope()->set_generation(3);
  request.mutable_scope()->add_acknowledged_receipts(7);
  request.mutable_scope()->add_abandoned_operations("fedcba9876543210");
  Call call;
  ASSERT_TRUE(Decode(request, DecodeContext(), &call).ok());
  EXPECT_EQ(call.caller.key.tenant, "default");
  EXPECT_EQ(call.caller.key.group, "job");
  EXPECT_EQ(call.caller.generation, 3);
  EXPECT_EQ(call.caller.session.ToBytes(), "0123456789abcdef");
  EXPECT_TRUE(call.caller.operation_id.empty());
  EXPECT_THAT(call.caller.acknowledged, testing::ElementsAre(7));
  ASSERT_EQ(call.caller.abandoned.size(), 1u);
  EXPECT_EQ(call.caller.abandoned[0].ToBytes(), "fedcba9876543210");
}

TEST(DecodeTest, KeepAliveWithATensorReport) {
  using R = v1::KeepAliveRequest;
  R base = Base<R>();
  v1::TensorOperation& open = *base.mutable_tensors()->mutable_open();
  open.set_number(42);
  open.set_collective("all_reduce");
  open.set_state("running on the device");
  open.mutable_begun()->set_seconds(3);
  Check<R>(
      base,
      {{"collective",
        [](R& r) { r.mutable_tensors()->mutable_open()->set_collective(std::string(33, 'a')); },
        kInvalid, "tensors.open.collective: longer than 32"},
       {"control", [](R& r) { r.mutable_tensors()->mutable_last()->set_state("\x1b[2J"); },
        kInvalid, "tensors.last.state"},
       {"number", [](R& r) { r.mutable_tensors()->mutable_open()->set_number(-1); }, kInvalid,
        "tensors.open.number"},
       {"age", [](R& r) { r.mutable_tensors()->mutable_open()->mutable_begun()->set_seconds(-1); },
        kInvalid, "tensors.open.begun"},
       {"64 ranges",
        [](R& r) {
          for (int i = 0; i < 64; ++i) {
            v1::RankRange& range = *r.mutable_tensors()->add_waits_for();
            range.set_first(2 * i);
            range.set_last(2 * i);
          }
        },
        kOk, ""},
       {"65 ranges",
        [](R& r) {
          for (int i = 0; i < 65; ++i) r.mutable_tensors()->add_waits_for();
        },
        kInvalid, "tensors.waits_for: more than 64"}});
  Call call;
  ASSERT_TRUE(Decode(base, DecodeContext(), &call).ok());
  const auto& report = std::get<KeepAliveCall>(call.body).tensors;
  ASSERT_TRUE(report.has_value() && report->open.has_value());
  EXPECT_EQ(report->open->number, 42);
  EXPECT_EQ(report->open->begun, absl::Seconds(3));
  EXPECT_FALSE(report->open->ended.has_value());
  EXPECT_FALSE(report->last.has_value());
}

TEST(DecodeTest, Join) {
  using R = v1::JoinRequest;
  R base = Base<R>();
  base.set_member("m0");
  base.set_incarnation(-5);
  base.mutable_spec()->set_min_members(1);
  base.mutable_spec()->set_max_members(2);
  Check<R>(
      base,
      {{"member", [](R& r) { r.clear_member(); }, kInvalid, "member"},
       {"incarnation", [](R& r) { r.set_incarnation(0); }, kInvalid, "incarnation"},
       {"rank", [](R& r) { r.set_rank(-1); }, kInvalid, "rank"},
       {"rank high", [](R& r) { r.set_rank(16384); }, kInvalid, "max_members (16384)"},
       {"host", [](R& r) { r.set_host(std::string(257, 'h')); }, kInvalid, "host"},
       {"addresses",
        [](R& r) {
          for (int i = 0; i < 17; ++i) r.add_addresses("a");
        },
        kInvalid, "addresses"},
       {"label", [](R& r) { (*r.mutable_labels())["l"] = std::string(257, 'v'); }, kInvalid,
        "labels"},
       {"min", [](R& r) { r.mutable_spec()->set_min_members(0); }, kInvalid, "min_members"},
       {"max", [](R& r) { r.mutable_spec()->set_max_members(0); }, kInvalid, "max_members"},
       {"many", [](R& r) { r.mutable_spec()->set_max_members(16385); }, kExhausted,
        "max_members (16384)"},
       {"fate", [](R& r) { r.mutable_spec()->set_fate(static_cast<v1::Fate>(9)); }, kInvalid,
        "spec.fate"},
       {"lease short", [](R& r) { r.mutable_spec()->mutable_lease()->set_nanos(49000000); },
        kInvalid, "spec.lease"},
       {"lease", [](R& r) { r.mutable_spec()->mutable_lease()->set_nanos(50000000); }, kOk, ""},
       {"lease long", [](R& r) { r.mutable_spec()->mutable_lease()->set_seconds(3601); }, kInvalid,
        "spec.lease"},
       {"attached lease short",
        [](R& r) { r.mutable_spec()->mutable_attached_lease()->set_seconds(29); }, kInvalid,
        "spec.attached_lease"},
       {"attached lease", [](R& r) { r.mutable_spec()->mutable_attached_lease()->set_seconds(30); },
        kOk, ""},
       {"attached lease long",
        [](R& r) { r.mutable_spec()->mutable_attached_lease()->set_seconds(86401); }, kInvalid,
        "spec.attached_lease"},
       {"digest", [](R& r) { r.mutable_spec()->set_parameters_digest(std::string(65, 'd')); },
        kInvalid, "parameters_digest"},
       {"wait negative", [](R& r) { r.mutable_wait()->set_seconds(-1); }, kInvalid, "wait"},
       {"wait malformed", [](R& r) { r.mutable_wait()->set_nanos(1000000000); }, kInvalid, "wait"},
       {"wait two signs",
        [](R& r) {
          r.mutable_wait()->set_seconds(1);
          r.mutable_wait()->set_nanos(-1);
        },
        kInvalid, "wait"},
       {"wait huge", [](R& r) { r.mutable_wait()->set_seconds(INT64_MAX); }, kInvalid, "wait"}});
}

TEST(DecodeTest, TheSpecOfAGroupArrives) {
  auto request = Base<v1::CreateGroupRequest>();
  v1::GroupSpec& spec = *request.mutable_spec();
  spec.set_min_members(2);
  spec.set_max_members(3);
  spec.set_fate(v1::FATE_REPORT);
  spec.mutable_lease()->set_seconds(11);
  spec.mutable_attached_lease()->set_seconds(12);
  spec.mutable_disconnect_grace()->set_seconds(13);
  spec.mutable_data_expiration()->set_seconds(14);
  spec.mutable_progress_timeout()->set_seconds(15);
  spec.mutable_join_window()->set_seconds(16);
  spec.set_parameters_digest("digest");
  (*spec.mutable_labels())["zone"] = "a";
  Call call;
  ASSERT_TRUE(Decode(request, DecodeContext(), &call).ok());
  const GroupSpec& decoded = std::get<CreateGroupCall>(call.body).spec;
  EXPECT_EQ(decoded.min_members, 2);
  EXPECT_EQ(decoded.max_members, 3);
  EXPECT_EQ(decoded.fate, Fate::kReport);
  EXPECT_EQ(decoded.lease, absl::Seconds(11));
  EXPECT_EQ(decoded.attached_lease, absl::Seconds(12));
  EXPECT_EQ(decoded.disconnect_grace, absl::Seconds(13));
  EXPECT_EQ(decoded.data_expiration, absl::Seconds(14));
  EXPECT_EQ(decoded.progress_timeout, absl::Seconds(15));
  EXPECT_EQ(decoded.join_window, absl::Seconds(16));
  EXPECT_EQ(decoded.parameters_digest, "digest");
  EXPECT_THAT(decoded.labels, testing::ElementsAre(testing::Pair("zone", "a")));
}

TEST(DecodeTest, Ranges) {
  using R = v1::BarrierRequest;
  const auto add = [](R& r, int first, int last) {
    v1::RankRange* range = r.mutable_round()->add_participants();
    range->set_first(first);
    range->set_last(last);
  };
  Check<R>(Base<R>(),
           {{"unsorted", [&](R& r) { add(r, 5, 9), add(r, 0, 4); }, kOk, ""},
            {"overlap", [&](R& r) { add(r, 4, 9), add(r, 0, 4); }, kInvalid, "rank 4"},
            {"upside down", [&](R& r) { add(r, 3, 2); }, kInvalid, "3-2"},
            {"negative", [&](R& r) { add(r, -1, 2); }, kInvalid, "participants"},
            {"huge", [&](R& r) { add(r, 0, INT32_MAX); }, kInvalid, "max_members (16384)"},
            {"digest", [](R& r) { r.mutable_round()->set_digest(std::string(65, 'd')); }, kInvalid,
             "round.digest"},
            {"number", [](R& r) { r.mutable_round()->set_number(-1); }, kInvalid, "round.number"},
            // None could follow it.
            {"last number", [](R& r) { r.mutable_round()->set_number(INT64_MAX); }, kInvalid,
             "round.number"}});
  R request = Base<R>();
  add(request, 5, 9);
  add(request, 0, 3);
  Call call;
  ASSERT_TRUE(Decode(request, DecodeContext(), &call).ok());
  EXPECT_THAT(std::get<EnterRoundCall>(call.body).participants,
              testing::ElementsAre(RankRange{0, 3}, RankRange{5, 9}));
}

TEST(DecodeTest, Payloads) {
  using R = v1::SendRequest;
  R base = Base<R>();
  base.mutable_payload()->set_inline_("");
  Check<R>(
      base,
      {{"none", [](R& r) { r.clear_payload(); }, kInvalid, "payload"},
       {"limit", [](R& r) { r.mutable_payload()->set_inline_(std::string(3 << 20, 'x')); }, kOk,
        ""},
       {"over", [](R& r) { r.mutable_payload()->set_inline_(std::string((3 << 20) + 1, 'x')); },
        kExhausted, "max_inline_bytes (3145728)"},
       {"blob 0", [](R& r) { r.mutable_payload()->mutable_blob(); }, kInvalid, "payload.blob"},
       {"blob", [](R& r) { r.mutable_payload()->mutable_blob()->set_blob(7); }, kOk, ""},
       {"destination", [](R& r) { r.set_destination(-1); }, kInvalid, "destination"},
       {"tag", [](R& r) { r.set_tag("a b"); }, kInvalid, "tag"},
       {"expiration", [](R& r) { r.mutable_expiration()->set_nanos(-1); }, kInvalid,
        "expiration"}});
  // An empty value is a value, and large ones move.
  Call call;
  ASSERT_TRUE(Decode(base, DecodeContext(), &call).ok());
  EXPECT_TRUE(std::get<SendCall>(call.body).value.present);
  EXPECT_EQ(call.wait, absl::Seconds(300));
}

TEST(DecodeTest, ScatteredValuesAreCut) {
  using R = v1::ScatterRequest;
  R base = Base<R>();
  base.mutable_values()->set_inline_("abc");
  for (const int64_t size : {1, 0, 2}) base.mutable_values()->add_sizes_bytes(size);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Check<R>(
      base,
      {{"short", [](R& r) { r.mutable_values()->set_sizes_bytes(2, 1); }, kInvalid, "3 bytes"},
       {"long", [](R& r) { r.mutable_values()->set_sizes_bytes(2, 3); }, kInvalid, "3 bytes"},
       {"too long", [](R& r) { r.mutable_values()->set_sizes_bytes(0, kMost); }, kInvalid, "3 bytes"},
       {"overflow", [](R& r) { r.mutable_values()->set_sizes_bytes(2, kMost); }, kInvalid, "3 bytes"},
       {"negative", [](R& r) { r.mutable_values()->set_sizes_bytes(1, -1); }, kInvalid, "negative"},
       {"none", [](R& r) { r.mutable_values()->clear_sizes_bytes(); }, kInvalid, "sizes_bytes"},
       {"both", [](R& r) { r.mutable_values()->mutable_blob()->set_blob(7); }, kInvalid, "both"},
       {"over",
        [](R& r) {
          r.mutable_values()->set_inline_(std::string((3 << 20) + 1, 'x'));
          r.mutable_values()->set_sizes_bytes(2, 3 << 20);
        },
        kExhausted, "max_inline_bytes (3145728)"}});
  Call call;
  ASSERT_TRUE(Decode(base, DecodeContext(), &call).ok());
  std::vector<std::string> values;
  for (const Value& value : std::get<EnterRoundCall>(call.body).values) values.push_back(value.bytes);
  EXPECT_THAT(values, testing::ElementsAre("a", "", "bc"));
}

TEST(DecodeTest, StoreKeysAndValues) {
  using R = v1::PutRequest;
  R base;
  base.set_key("k");
  Check<R>(base,
           {{"empty", [](R& r) { r.clear_key(); }, kInvalid, "key"},
            {"1024", [](R& r) { r.set_key(std::string(1024, 'k')); }, kOk, ""},
            {"1025", [](R& r) { r.set_key(std::string(1025, 'k')); }, kInvalid, "1024"},
            {"NUL", [](R& r) { r.set_key(std::string("a\0b", 3)); }, kInvalid, "NUL"},
            {"any text", [](R& r) { r.set_key("\xc3\xa4 b"); }, kOk, ""},
            {"value", [](R& r) { r.set_value(std::string((1 << 20) + 1, 'v')); }, kExhausted,
             "max_value_bytes (1048576)"},
            {"revision", [](R& r) { r.set_expected_revision(-1); }, kInvalid, "expected_revision"},
            {"further key empty", [](R& r) { r.add_more(); }, kInvalid, "more.key"},
            {"key twice", [](R& r) { r.add_more()->set_key(r.key()); }, kInvalid, "comes twice"},
            {"further key twice",
             [](R& r) {
               r.add_more()->set_key("x");
               r.add_more()->set_key("x");
             },
             kInvalid, "key x comes twice"},
            {"further value",
             [](R& r) {
               r.add_more()->set_key("x");
               r.mutable_more(0)->set_value(std::string((1 << 20) + 1, 'v'));
             },
             kExhausted, "max_value_bytes"},
            {"further revision",
             [](R& r) {
               r.add_more()->set_key("x");
               r.mutable_more(0)->set_expected_revision(-1);
             },
             kInvalid, "expected_revision"},
            {"1001 keys",
             [](R& r) {
               for (int i = 0; i < 1000; ++i) r.add_more()->set_key(absl::StrCat("k", i));
             },
             kInvalid, "999"},
            {"group", [](R& r) { r.mutable_scope()->set_group("a b"); }, kInvalid, "scope.group"}});
  using D = v1::DeleteRequest;
  D all;
  all.set_prefix(true);
  Check<D>(all, {{"no key", [](D& r) { r.set_prefix(false); }, kInvalid, "key"}});
  using G = v1::GetRequest;
  G get;
  get.add_keys("k");
  Check<G>(get, {{"none", [](G& r) { r.clear_keys(); }, kInvalid, "keys"},
                 {"1001",
                  [](G& r) {
                    for (int i = 0; i < 1000; ++i) r.add_keys("k");
                  },
                  kInvalid, "1000"},
                 {"1001 with queues",
                  [](G& r) {
                    for (int i = 0; i < 1000; ++i) r.add_queues("q");
                  },
                  kInvalid, "1000"},
                 {"queue", [](G& r) { r.add_queues("a b"); }, kInvalid, "queues"}});
  using P = v1::RangeRequest;
  Check<P>(P(), {{"page", [](P& r) { r.set_page_size(1001); }, kInvalid, "page_size"},
                 {"negative", [](P& r) { r.set_page_size(-1); }, kInvalid, "page_size"}});
}

TEST(DecodeTest, UniqueIdsAndEnums) {
  using R = v1::PublishRequest;
  R base = Base<R>();
  base.set_name("world");
  base.add_ids(std::string(128, 'i'));
  Check<R>(base, {{"none", [](R& r) { r.clear_ids(); }, kInvalid, "ids"},
                  {"empty", [](R& r) { r.add_ids(""); }, kInvalid, "ids"},
                  {"long", [](R& r) { r.add_ids(std::string(257, 'i')); }, kInvalid, "ids"},
                  {"65",
                   [](R& r) {
                     for (int i = 0; i < 64; ++i) r.add_ids("i");
                   },
                   kInvalid, "ids"}});
  using V = v1::VoteRequest;
  V vote = Base<V>();
  vote.set_op(v1::VOTE_OP_SUM);
  Check<V>(vote, {{"none", [](V& r) { r.clear_op(); }, kInvalid, "op"},
                  {"unknown", [](V& r) { r.set_op(static_cast<v1::VoteOp>(7)); }, kInvalid, "op"}});
  for (int op = 1; op <= 6; ++op) {
    vote.set_op(static_cast<v1::VoteOp>(op));
    Call call;
    ASSERT_TRUE(Decode(vote, DecodeContext(), &call).ok());
    EXPECT_EQ(static_cast<int>(std::get<EnterRoundCall>(call.body).op), op);
  }
  using I = v1::ReportInitRequest;
  I init = Base<I>();
  init.set_name("world");
  init.set_phase(v1::INIT_PHASE_DONE);
  Check<I>(init, {{"phase", [](I& r) { r.clear_phase(); }, kInvalid, "phase"}});
}

TEST(DecodeTest, ProposalsOfAViewAndTheirAcknowledgements) {
  using R = v1::ProposeViewRequest;
  R base = Base<R>();
  base.add_add("spare");
  base.add_add("other");
  auto* const range = base.add_remove();
  range->set_first(2);
  range->set_last(3);
  base.mutable_wait()->set_seconds(7);
  Check<R>(base, {{"silent", [](R& r) { r.set_silent(static_cast<v1::SilentPolicy>(7)); }, kInvalid,
                   "silent"},
                  {"range", [](R& r) { r.mutable_remove(0)->set_last(1); }, kInvalid, "remove"},
                  {"name", [](R& r) { r.add_add(""); }, kInvalid, "add"},
                  {"wait", [](R& r) { r.mutable_wait()->set_seconds(-1); }, kInvalid, "wait"}});
  for (const auto& [silent, drops] :
       {std::pair(v1::SILENT_POLICY_UNSPECIFIED, false), std::pair(v1::SILENT_POLICY_FAIL, false),
        std::pair(v1::SILENT_POLICY_DROP, true)}) {
    R request = base;
    request.set_silent(silent);
    Call call;
    ASSERT_TRUE(Decode(request, DecodeContext(), &call).ok());
    const auto& body = std::get<ProposeViewCall>(call.body);
    EXPECT_EQ(body.drop_silent, drops) << silent;
    EXPECT_THAT(body.add, testing::ElementsAre("spare", "other"));
    EXPECT_THAT(body.remove, testing::ElementsAre(RankRange{2, 3}));
    EXPECT_EQ(call.wait, absl::Seconds(7));
  }

  using A = v1::AckViewRequest;
  A acknowledgement = Base<A>();
  acknowledgement.set_proposal(5);
  acknowledgement.set_refuse(true);
  acknowledgement.set_reason("busy");
  Check<A>(acknowledgement,
           {{"no proposal", [](A& r) { r.clear_proposal(); }, kInvalid, "proposal"}});
  Call call;
  ASSERT_TRUE(Decode(acknowledgement, DecodeContext(), &call).ok());
  const auto& body = std::get<AckViewCall>(call.body);
  EXPECT_EQ(body.proposal, 5);
  EXPECT_TRUE(body.refuse);
  EXPECT_EQ(body.reason, "busy");
}

TEST(DecodeTest, ReasonsAreCountedInCharacters) {
  using R = v1::LeaveRequest;
  std::string reason;
  for (int i = 0; i < 512; ++i) reason += "\xe2\x82\xac";
  Check<R>(Base<R>(), {{"512", [&](R& r) { r.set_reason(reason); }, kOk, ""},
                       {"513", [&](R& r) { r.set_reason(reason + "x"); }, kInvalid, "reason"}});
}

TEST(DecodeTest, DefaultWaits) {
  Call call;
  auto barrier = Base<v1::BarrierRequest>();
  ASSERT_TRUE(Decode(barrier, DecodeContext(), &call).ok());
  EXPECT_EQ(call.wait, absl::Seconds(30));
  v1::GetRequest get;
  get.add_keys("k");
  ASSERT_TRUE(Decode(get, DecodeContext(), &call).ok());
  EXPECT_FALSE(std::get<GetCall>(call.body).wait);
  EXPECT_EQ(call.wait, absl::ZeroDuration());
}

TEST(DecodeTest, WaitsEndBeforeTheDeadline) {
  DecodeContext context;
  EXPECT_EQ(CapWait(absl::Hours(5), context), absl::Hours(1));
  context.time_left = absl::Seconds(100);
  EXPECT_EQ(CapWait(absl::Hours(5), context), absl::Seconds(98));
  EXPECT_EQ(CapWait(absl::Seconds(3), context), absl::Seconds(3));
  context.time_left = absl::Milliseconds(100);
  EXPECT_EQ(CapWait(absl::Hours(5), context), absl::Milliseconds(95));
  // At least half of the time that is left.
  context.time_left = absl::Milliseconds(6);
  EXPECT_EQ(CapWait(absl::Hours(5), context), absl::Milliseconds(3));
  context.time_left = absl::Milliseconds(-6);
  EXPECT_EQ(CapWait(absl::Hours(5), context), absl::ZeroDuration());
}

}  // namespace
}  // namespace cohort::coordinator
