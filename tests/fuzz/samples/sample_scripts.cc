// One file, though long: it is a list of scripts, in one function for each topic.
#include "tests/fuzz/samples/sample_scripts.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "tests/fuzz/samples/script_builder.h"

namespace cohort::coordinator::fuzz {
namespace {

template <typename Request>
Request Make(const std::function<void(Request&)>& fill = [](Request&) {}) {
  Request request;
  fill(request);
  return request;
}

void AddRange(int first, int last, google::protobuf::RepeatedPtrField<v1::RankRange>* ranges) {
  v1::RankRange* range = ranges->Add();
  range->set_first(first);
  range->set_last(last);
}

void AddBarriers(std::map<std::string, std::string>& inputs) {
  v1::BarrierRequest barrier;
  barrier.mutable_round()->set_name("step");
  inputs["barrier_released"] =
      ScriptBuilder(World::kSharedFate).All(3, Method::kBarrier, barrier).Build();
  inputs["barrier_times_out"] = ScriptBuilder(World::kSharedFate)
                                    .All(2, Method::kBarrier, barrier)
                                    .Call(4, Method::kWhoIsMissing, v1::WhoIsMissingRequest())
                                    .Advance(14)
                                    .All(3, Method::kKeepAlive, v1::KeepAliveRequest())
                                    .Advance(14)
                                    .All(3, Method::kBarrier, barrier)
                                    .Build();
  v1::BarrierRequest last = barrier;
  last.mutable_round()->set_number(std::numeric_limits<int64_t>::max());
  inputs["barrier_with_the_last_number"] = ScriptBuilder(World::kSharedFate)
                                               .All(3, Method::kBarrier, last)
                                               .All(3, Method::kBarrier, barrier)
                                               .Build();
  v1::BarrierRequest some = barrier;
  AddRange(0, 1, some.mutable_round()->mutable_participants());
  v1::BarrierRequest overlap = some;
  AddRange(1, 2, overlap.mutable_round()->mutable_participants());
  inputs["barrier_mismatch"] = ScriptBuilder(World::kReportedFate)
                                   .Call(0, Method::kBarrier, some)
                                   .Call(0, Method::kBarrier, overlap)
                                   .Call(1, Method::kBarrier, barrier)
                                   .Build();
  v1::CancelBarrierRequest cancel;
  cancel.set_name("step");
  cancel.set_reason(std::string(512, 'r'));
  inputs["barrier_cancelled"] = ScriptBuilder(World::kSharedFate)
                                    .All(2, Method::kBarrier, barrier)
                                    .Call(2, Method::kCancelBarrier, cancel)
                                    .Call(2, Method::kBarrier, barrier)
                                    .CancelOldest()
                                    .Build();
}

void AddRoundsWithValues(std::map<std::string, std::string>& inputs) {
  v1::AllGatherRequest all;
  all.mutable_payload()->set_inline_("value");
  inputs["all_gather"] = ScriptBuilder(World::kSharedFate)
                             .All(3, Method::kAllGather, all)
                             .All(3, Method::kStats, v1::StatsRequest(), kAcknowledgeLatest)
                             .Build();
  v1::GatherRequest gather;
  gather.set_root(1);
  gather.mutable_payload()->set_inline_("");
  inputs["gather"] = ScriptBuilder(World::kSharedFate).All(3, Method::kGather, gather).Build();
  v1::BroadcastRequest broadcast;
  broadcast.mutable_payload()->set_inline_("from the root");
  broadcast.set_wait_consumed(true);
  inputs["broadcast"] = ScriptBuilder(World::kSharedFate)
                            .Call(1, Method::kBroadcast, broadcast)
                            .Call(0, Method::kBroadcast, broadcast)
                            .Call(2, Method::kBroadcast, broadcast, kAcknowledgeLatest)
                            .Build();
  v1::ScatterRequest scatter;
  scatter.mutable_values()->set_inline_("abbc");
  for (const int64_t size : {1, 2, 1}) scatter.mutable_values()->add_sizes_bytes(size);
  inputs["scatter"] = ScriptBuilder(World::kSharedFate).All(3, Method::kScatter, scatter).Build();
  // A rank that is not a participant of an ended round has no value in it.
  v1::ScatterRequest two;
  AddRange(0, 1, two.mutable_round()->mutable_participants());
  two.mutable_round()->set_number(1);
  two.mutable_values()->set_inline_("ab");
  two.mutable_values()->add_sizes_bytes(1);
  two.mutable_values()->add_sizes_bytes(1);
  v1::ScatterRequest outsider;
  outsider.mutable_round()->set_number(1);
  inputs["scatter_from_outside"] = ScriptBuilder(World::kSharedFate)
                                       .All(2, Method::kScatter, two)
                                       .Call(2, Method::kScatter, outsider)
                                       .Build();
}

void AddAgreements(std::map<std::string, std::string>& inputs) {
  for (int op = v1::VOTE_OP_AND; op <= v1::VOTE_OP_EQUAL; ++op) {
    v1::VoteRequest low, high;
    low.set_op(static_cast<v1::VoteOp>(op));
    high.set_op(static_cast<v1::VoteOp>(op));
    low.set_value(std::numeric_limits<int64_t>::min());
    high.set_value(std::numeric_limits<int64_t>::max());
    inputs[absl::StrCat("vote_", op)] = ScriptBuilder(World::kReportedFate)
                                            .All(2, Method::kVote, low)
                                            .Call(2, Method::kVote, high)
                                            .Build();
  }
  inputs["agree_alive"] = ScriptBuilder(World::kReportedFate)
                              .All(2, Method::kAgreeAlive, v1::AgreeAliveRequest())
                              .Call(2, Method::kLeave, v1::LeaveRequest())
                              .Build();
}

void AddObjects(std::map<std::string, std::string>& inputs) {
  v1::SendRequest send;
  send.set_destination(1);
  send.set_tag("t");
  send.mutable_payload()->set_inline_("payload");
  v1::ReceiveRequest receive;
  receive.set_tag("t");
  inputs["send_receive"] = ScriptBuilder(World::kSharedFate)
                               .Call(0, Method::kSend, send, kRepeatable)
                               .Call(0, Method::kSend, send, kRepeatable)
                               .Call(1, Method::kReceive, receive, kRepeatable)
                               .Call(1, Method::kReceive, receive, kRepeatable)
                               .Call(1, Method::kReceive, receive, kAcknowledgeLatest)
                               .Build();
  v1::SendRequest wait = send;
  wait.set_wait_consumed(true);
  inputs["send_until_consumed"] = ScriptBuilder(World::kSharedFate)
                                      .Call(1, Method::kReceive, receive)
                                      .Call(0, Method::kSend, wait)
                                      .Call(2, Method::kSend, wait)
                                      .Call(1, Method::kLeave, v1::LeaveRequest())
                                      .Build();
  v1::SendRequest short_lived = send;
  short_lived.mutable_expiration()->set_nanos(1);
  inputs["object_expires"] = ScriptBuilder(World::kReportedFate)
                                 .Call(0, Method::kSend, short_lived)
                                 .Advance(3)
                                 .Call(1, Method::kReceive, receive)
                                 .Call(1, Method::kReceive, receive)
                                 .Call(0, Method::kExpire, v1::ExpireRequest())
                                 .Build();
  v1::UploadRequest upload;
  upload.set_size_bytes(4);
  upload.set_data("blob");
  v1::SendRequest send_blob = send;
  send_blob.mutable_payload()->mutable_blob()->set_blob(1);
  v1::DownloadRequest download;
  download.set_blob(1);
  inputs["blob"] = ScriptBuilder(World::kSharedFate)
                       .Call(0, Method::kUpload, upload)
                       .Call(0, Method::kDownload, download)
                       .Call(0, Method::kSend, send_blob)
                       .Call(0, Method::kSend, send_blob)
                       .Call(1, Method::kReceive, receive)
                       .Build();
  v1::ScatterRequest cut;
  cut.mutable_values()->mutable_blob()->set_blob(1);
  for (const int64_t size : {1, 0, 3}) cut.mutable_values()->add_sizes_bytes(size);
  v1::ScatterRequest cut_wrong = cut;
  cut_wrong.mutable_values()->set_sizes_bytes(1, std::numeric_limits<int64_t>::max());
  inputs["scatter_of_a_blob"] = ScriptBuilder(World::kSharedFate)
                                    .Call(0, Method::kUpload, upload)
                                    .Call(0, Method::kScatter, cut_wrong)
                                    .Call(0, Method::kUpload, upload)
                                    .Call(0, Method::kScatter, cut)
                                    .Call(1, Method::kScatter, v1::ScatterRequest())
                                    .Call(2, Method::kScatter, v1::ScatterRequest())
                                    .Build();
  // Values together over max_inline_bytes travel as a blob.
  v1::LimitsRequest limits;
  (*limits.mutable_set())["max_inline_bytes"] = 8;
  v1::AllGatherRequest all;
  all.mutable_payload()->set_inline_("12345678");
  inputs["values_as_a_blob"] = ScriptBuilder(World::kSharedFate)
                                   .Call(4, Method::kLimits, limits)
                                   .All(3, Method::kAllGather, all)
                                   .Call(0, Method::kStats, v1::StatsRequest(), kAcknowledgeLatest)
                                   .Build();
}

void AddJoins(std::map<std::string, std::string>& inputs) {
  v1::JoinRequest again;
  again.set_incarnation(2);
  inputs["replaced"] = ScriptBuilder(World::kSharedFate)
                           .Call(4, Method::kWatchGroup, v1::WatchGroupRequest())
                           .Call(1, Method::kJoin, again)
                           .Call(0, Method::kJoin, v1::JoinRequest())
                           .Call(2, Method::kJoin, v1::JoinRequest())
                           .Build();
  inputs["leases_end"] = ScriptBuilder(World::kReportedFate)
                             .Call(0, Method::kBarrier, v1::BarrierRequest())
                             .Advance(15)
                             .Call(0, Method::kKeepAlive, v1::KeepAliveRequest())
                             .Call(4, Method::kGetGroup, v1::GetGroupRequest())
                             .Build();
  v1::LimitsRequest limits;
  (*limits.mutable_set())["max_members"] = int64_t{1} << 50;
  v1::CreateGroupRequest huge;
  huge.mutable_scope()->set_group("huge");
  huge.mutable_spec()->set_min_members(1);
  huge.mutable_spec()->set_max_members(std::numeric_limits<int32_t>::max());
  inputs["as_large_as_limits_go"] = ScriptBuilder(World::kEmpty)
                                        .Call(4, Method::kLimits, limits)
                                        .Call(4, Method::kCreateGroup, huge)
                                        .Build();
}

void AddViews(std::map<std::string, std::string>& inputs) {
  v1::JoinRequest candidate;
  candidate.set_member("newcomer");
  candidate.set_incarnation(7);
  v1::ProposeViewRequest propose;
  AddRange(1, 1, propose.mutable_remove());
  propose.add_add("newcomer");
  v1::AckViewRequest ack;
  ack.set_proposal(1);
  inputs["view"] = ScriptBuilder(World::kElastic)
                       .Call(2, Method::kJoin, candidate)
                       .Call(0, Method::kProposeView, propose)
                       .Call(4, Method::kGetGroup, v1::GetGroupRequest())
                       .Call(0, Method::kAckView, ack)
                       .Call(1, Method::kAckView, ack)
                       .Build();
  v1::AckViewRequest refuse = ack;
  refuse.set_refuse(true);
  refuse.set_reason(std::string(512, 'r'));
  inputs["view_refused"] = ScriptBuilder(World::kSharedFate)
                               .Call(0, Method::kProposeView, propose)
                               .Call(1, Method::kKeepAlive, v1::KeepAliveRequest())
                               .Call(2, Method::kAckView, refuse)
                               .Build();
}

void AddReportedErrors(std::map<std::string, std::string>& inputs) {
  v1::ReportErrorRequest error;
  error.set_fatal(true);
  for (int i = 0; i < 1024; ++i) error.mutable_detail()->append("\xF0\x9F\x98\x80");
  v1::JoinRequest from_far;
  for (int i = 0; i < 256; ++i) from_far.mutable_host()->append("\xF0\x9F\x98\x80");
  inputs["longest_cause"] = ScriptBuilder(World::kSharedFate)
                                .Call(0, Method::kJoin, from_far)
                                .Call(0, Method::kReportError, error)
                                .Call(1, Method::kBarrier, v1::BarrierRequest())
                                .Call(1, Method::kAgreeAlive, v1::AgreeAliveRequest())
                                .Build();
  // Short enough before the detail for its cut to be seen, which is within a character.
  v1::JoinRequest alone;
  alone.mutable_spec()->set_min_members(1);
  alone.mutable_spec()->set_max_members(1);
  error.set_detail("a" + error.detail().substr(4));
  inputs["detail_cut_within_a_character"] = ScriptBuilder(World::kEmpty)
                                                .Call(0, Method::kJoin, alone)
                                                .Call(0, Method::kReportError, error)
                                                .Call(0, Method::kBarrier, v1::BarrierRequest())
                                                .Build();
}

void AddEndsByOperators(std::map<std::string, std::string>& inputs) {
  v1::EvictRequest evict;
  evict.set_member("m1");
  evict.set_reason(std::string(512, 'r'));
  inputs["evicted"] =
      ScriptBuilder(World::kReportedFate)
          .Call(0, Method::kReceive,
                Make<v1::ReceiveRequest>([](auto& receive) { receive.set_source(1); }))
          .Call(4, Method::kEvict, evict)
          .Call(1, Method::kKeepAlive, v1::KeepAliveRequest())
          .Build();
  inputs["closed"] = ScriptBuilder(World::kSharedFate)
                         .Call(0, Method::kBarrier, v1::BarrierRequest())
                         .Call(1, Method::kReceive, v1::ReceiveRequest())
                         .Call(4, Method::kWatchGroup, v1::WatchGroupRequest())
                         .Call(2, Method::kCloseGroup, v1::CloseGroupRequest())
                         .Call(0, Method::kBarrier, v1::BarrierRequest())
                         .Build();
  v1::DrainRequest drain;
  drain.set_release_waiters(true);
  inputs["drained"] = ScriptBuilder(World::kSharedFate)
                          .All(2, Method::kBarrier, v1::BarrierRequest())
                          .Call(4, Method::kDumpWaits, v1::DumpWaitsRequest(), kTenantStore)
                          .Call(4, Method::kDrain, drain)
                          .Call(2, Method::kBarrier, v1::BarrierRequest())
                          .Build();
}

void AddStore(std::map<std::string, std::string>& inputs) {
  v1::PutRequest put;
  put.set_key("k");
  put.set_value("v");
  v1::AddRequest add;
  add.set_key("n");
  add.set_delta(std::numeric_limits<int64_t>::max());
  v1::AppendRequest append;
  append.set_key("k");
  append.set_value("w");
  v1::GetRequest get;
  get.add_keys("k");
  get.add_keys("absent");
  get.mutable_wait()->set_seconds(std::numeric_limits<int32_t>::max());
  v1::PutRequest several = put;
  several.set_expected_value("vw");
  several.add_more()->set_key("l");
  several.mutable_more(0)->set_expected_revision(0);
  v1::GetRequest either = get;
  either.add_queues("q");
  either.set_or_queue(true);
  v1::DeleteRequest erase;
  erase.set_prefix(true);
  v1::WatchRequest watch;
  watch.set_from_revision(1);
  inputs["store"] = ScriptBuilder(World::kSharedFate)
                        .Call(0, Method::kPut, put, kRepeatable)
                        .Call(0, Method::kPut, put, kRepeatable)
                        .Call(0, Method::kAdd, add)
                        .Call(0, Method::kAdd, add)
                        .Call(1, Method::kAppend, append)
                        .Call(2, Method::kGet, get)
                        .Call(3, Method::kGet, either)
                        .Call(1, Method::kWatch, watch)
                        .Call(0, Method::kPut, several, kRepeatable)
                        .Call(4, Method::kRange, v1::RangeRequest())
                        .Call(4, Method::kDelete, erase)
                        .Build();
  v1::PutRequest bound = put;
  bound.set_bind_to_session(true);
  bound.mutable_expiration()->set_nanos(1);
  bound.set_expected_revision(0);
  inputs["bound_key"] = ScriptBuilder(World::kReportedFate)
                            .Call(0, Method::kPut, bound)
                            .Call(1, Method::kWatch, v1::WatchRequest())
                            .Call(0, Method::kLeave, v1::LeaveRequest())
                            .Advance(4)
                            .Call(1, Method::kGet, get)
                            .Build();
  v1::QueuePushRequest push;
  push.set_queue("q");
  push.set_value("item");
  v1::QueuePopRequest pop;
  pop.set_queue("q");
  pop.mutable_wait()->set_seconds(10);
  inputs["queue"] = ScriptBuilder(World::kSharedFate)
                        .Call(1, Method::kQueuePop, pop, kRepeatable)
                        .Call(2, Method::kQueuePop, pop)
                        .All(3, Method::kQueuePush, push)
                        .Call(1, Method::kQueuePop, pop, kRepeatable)
                        .Call(1, Method::kQueuePop, pop, kAcknowledgeLatest)
                        .CancelOldest()
                        .Build();
  inputs["store_of_the_tenant"] = ScriptBuilder(World::kEmpty)
                                      .Call(4, Method::kPut, put, kTenantStore)
                                      .Call(4, Method::kQueuePush, push, kTenantStore)
                                      .Call(4, Method::kQueuePop, pop, kTenantStore | kRepeatable)
                                      .Call(4, Method::kRange, v1::RangeRequest(), kTenantStore)
                                      .Build();
}

void AddUniqueIds(std::map<std::string, std::string>& inputs) {
  v1::PublishRequest publish;
  publish.set_name("nccl");
  publish.add_ids(std::string(128, 'u'));
  v1::FetchRequest fetch;
  fetch.set_name("nccl");
  v1::ReportInitRequest report;
  report.set_name("nccl");
  report.set_phase(v1::INIT_PHASE_CALLING_INIT);
  inputs["unique_ids"] = ScriptBuilder(World::kSharedFate)
                             .Call(1, Method::kFetch, fetch)
                             .Call(0, Method::kPublish, publish)
                             .Call(2, Method::kFetch, fetch, kAcknowledgeLatest)
                             .Call(2, Method::kReportInit, report)
                             .Call(4, Method::kWhoIsMissing, v1::WhoIsMissingRequest())
                             .Call(1, Method::kStats, v1::StatsRequest(), kAcknowledgeLatest)
                             .Build();
}

}  // namespace

std::map<std::string, std::string> SampleScripts() {
  std::map<std::string, std::string> inputs;
  AddBarriers(inputs);
  AddRoundsWithValues(inputs);
  AddAgreements(inputs);
  AddObjects(inputs);
  AddJoins(inputs);
  AddViews(inputs);
  AddReportedErrors(inputs);
  AddEndsByOperators(inputs);
  AddStore(inputs);
  AddUniqueIds(inputs);
  return inputs;
}

}  // namespace cohort::coordinator::fuzz
