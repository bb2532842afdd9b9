// The requests and the output of each command. One file, though long: a case is a few lines, and
// all share one set of fake clients.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "client/cli/testing/tool_run.h"
#include "client/collective/trace/path_report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string TempPath(const std::string& name) { return testing::TempDir() + "/" + name; }

client::GroupInfo BrokenGroup() {
  client::GroupInfo group;
  group.name = "trainer";
  group.generation = 3;
  group.state = client::GroupState::kBroken;
  group.min_members = group.max_members = group.world_size = 2;
  group.revision = 17;
  group.lease = absl::Seconds(30);
  group.bytes_held = 1536;
  group.waiter_count = 1;
  group.cause.kind = client::CauseKind::kEvicted;
  group.cause.rank = 1;
  group.cause.member = "rank-1";
  client::Member member;
  member.name = "rank-0";
  member.rank = 0;
  member.incarnation_hash = 5;
  member.state = client::MemberState::kActive;
  member.host = "host-a";
  member.last_heard = absl::Milliseconds(350);
  member.attached = true;
  member.progress = 1200;
  member.progress_operation = "step";
  member.progress_age = absl::Seconds(2);
  client::Member lost;
  lost.name = "rank-1";
  lost.rank = 1;
  lost.state = client::MemberState::kLost;
  lost.last_heard = absl::Seconds(95);
  group.members = {member, lost};
  return group;
}

TEST(GroupCommand, ListsGroupsInATable) {
  ToolRun tool;
  EXPECT_EQ(tool({"group", "list"}).out, "no groups\n");
  tool.fake.groups = {BrokenGroup()};
  EXPECT_EQ(tool({"group", "list"}).out,
            "GROUP    STATE   GENERATION  RANKS  PARKED     HELD  CAUSE\n"
            "trainer  broken           3      2       1  1.5 KiB  evicted, rank 1 (rank-1)\n");
}

TEST(GroupCommand, ShowsMembersAndCause) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  EXPECT_EQ(tool({"group", "show", "trainer"}).out,
            "group       trainer\n"
            "state       broken\n"
            "generation  3\n"
            "world size  2\n"
            "lease       30s\n"
            "revision    17\n"
            "holds       1.5 KiB, 1 parked call\n"
            "cause       evicted, rank 1 (rank-1)\n"
            "\n"
            "RANK  MEMBER  STATE   HOST    LAST HEARD            PROGRESS\n"
            "   0  rank-0  active  host-a  350ms ago (attached)  1200 in step (2.0s ago)\n"
            "   1  rank-1  lost    -       1m35s ago             -\n");
}

TEST(GroupCommand, ShowsHowItsRanksReachEachOther) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  const auto keep = [&](int generation) {
    client::KeyValue paths;
    paths.value = client::EncodePathReport({generation, {{0}, {1}}, {"rank 1 did not come"}});
    tool.fake.get.values = {paths};
  };
  keep(3);
  const std::string out = tool({"group", "show", "trainer"}).out;
  EXPECT_THAT(out, HasSubstr("paths       TCP between all ranks\n"));
  EXPECT_THAT(out, HasSubstr("not shared  rank 1 did not come\n"));
  EXPECT_THAT(tool({"group", "show", "trainer", "--json"}).out,
              HasSubstr(R"("paths":{"generation":3,"hosts":[[0],[1]],)"));
  keep(2);  // of the generation before
  EXPECT_THAT(tool({"group", "show", "trainer"}).out, Not(HasSubstr("paths")));
}

TEST(WorkerCommand, ShowsTheRanksOfAWorker) {
  ToolRun tool;
  tool.fake.worker.version = "1.2.3";
  tool.fake.worker.pid = 17;
  tool.fake.worker.host = "host-a";
  tool.fake.worker.tensor_bytes = 2048;
  client::WorkerRank rank;
  rank.client = "trainer";
  rank.client_pid = 4711;
  rank.group = "weights";
  rank.generation = 3;
  rank.rank = 1;
  rank.world_size = 4;
  rank.attached = true;
  rank.waits = {{3, absl::Milliseconds(12400)}, {0, absl::Milliseconds(200)}};
  tool.fake.worker.ranks = {rank};
  const std::string out = tool({"worker", "show", "unix:/w"}).out;
  EXPECT_THAT(tool.fake.calls, ElementsAre("Worker(unix:/w, 10s)"));
  EXPECT_THAT(out, HasSubstr("process   17 on host-a\n"));
  EXPECT_THAT(out, HasSubstr("weights     1   4           3  trainer 4711  in the client"));
  EXPECT_THAT(out, HasSubstr("rank 3 12s, rank 0 200ms"));
  EXPECT_THAT(tool({"worker", "show", "--json"}).out, HasSubstr(R"("client_pid":4711)"));
  EXPECT_THAT(tool({"worker", "show", "--json"}).out,
              HasSubstr(R"("waits":[{"rank":3,"seconds":12.4},{"rank":0,"seconds":0.2}])"));
}

TEST(WorkerCommand, TracesAllWorkersAsOne) {
  ToolRun tool;
  client::FlightRecord record;
  record.group = "weights";
  record.calls.resize(1);
  record.calls[0].collective = Collective::kAllReduce;
  tool.fake.flights = {record};
  const std::string out = tool({"worker", "trace", "a:1", "b:2", "--group", "weights"}).out;
  EXPECT_THAT(tool.fake.calls, ElementsAre("Worker(a:1, 10s)", "ReadFlightRecords(weights)",
                                           "Worker(b:2, 10s)", "ReadFlightRecords(weights)"));
  EXPECT_THAT(out, HasSubstr(R"("traceEvents":[)"));
  EXPECT_THAT(out, HasSubstr("all_reduce (running)"));
}

TEST(GroupCommand, ShowsTheSameAsJson) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  EXPECT_EQ(
      tool({"group", "show", "trainer", "--json"}).out,
      R"({"name":"trainer","generation":3,"state":"broken","min_members":2,"max_members":2,)"
      R"("world_size":2,"revision":17,"lease_seconds":30.0,"bytes_held":1536,"waiter_count":1,)"
      R"("cause":{"kind":"evicted","member":"rank-1","rank":1,"age_seconds":0.0},"members":[)"
      R"({"name":"rank-0","incarnation_hash":5,"state":"active","rank":0,"host":"host-a",)"
      R"("last_heard_seconds":0.35,"attached":true,"progress":1200,"progress_operation":"step",)"
      R"("progress_age_seconds":2.0},)"
      R"({"name":"rank-1","incarnation_hash":0,"state":"lost","rank":1,"last_heard_seconds":95.0,)"
      R"("attached":false}]})"
      "\n");
}

TEST(GroupCommand, WatchPrintsALineForEachEventUntilTheGroupCloses) {
  ToolRun tool;
  client::GroupEvent joined;
  joined.revision = 1;
  joined.kind = client::EventKind::kJoined;
  joined.generation = 1;
  joined.member = "rank-0";
  joined.rank = 0;
  client::GroupEvent closed;
  closed.revision = 2;
  closed.kind = client::EventKind::kClosed;
  closed.generation = 1;
  closed.cause.kind = client::CauseKind::kClosed;
  closed.cause.detail = "over";
  tool.fake.group_events = {joined, closed, joined};
  EXPECT_EQ(tool({"group", "watch", "g", "--from", "5", "--timeout", "1m"}).out,
            "rev 1  generation 1  joined  rank 0 (rank-0)\n"
            "rev 2  generation 1  closed  cause: closed: over\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("GetGroup(g)", "Stats()", "WatchGroup(g, 5, 1m)"));
  EXPECT_EQ(tool({"group", "watch", "g", "--json"}).out,
            R"({"revision":1,"event":"joined","generation":1,"member":"rank-0","rank":0})"
            "\n"
            R"({"revision":2,"event":"closed","generation":1,)"
            R"("cause":{"kind":"closed","detail":"over","age_seconds":0.0}})"
            "\n");
}

TEST(GroupCommand, WatchBeginsNowByDefault) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  EXPECT_EQ(tool({"group", "watch", "trainer"}).code, 0);
  EXPECT_THAT(tool.fake.calls, ElementsAre("GetGroup(trainer)", "WatchGroup(trainer, 17, inf)"));
}

TEST(GroupCommand, WatchGoesOnWhenTheCoordinatorHasForgottenTheEvents) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  tool.fake.group_events.resize(1);
  tool.fake.group_events[0].revision = 20;
  tool.fake.next = {absl::OkStatus(), absl::OutOfRangeError("not kept"), absl::OkStatus()};
  const ToolResult result = tool({"group", "watch", "trainer"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err,
            "cohort: events after revision 20 are not known (the coordinator restarted, or "
            "keeps it no longer); "
            "watching on from revision 17, generation 3, broken\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("GetGroup(trainer)", "WatchGroup(trainer, 17, inf)",
                                           "GetGroup(trainer)", "WatchGroup(trainer, 17, inf)"));
}

TEST(GroupCommand, WatchFromARevisionThatIsNotKeptIsAnErrorUnlessTheCoordinatorRestarted) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  tool.fake.next = {absl::OkStatus(), absl::OutOfRangeError("not kept")};
  EXPECT_EQ(tool({"group", "watch", "trainer", "--from", "5"}).err,
            "cohort: OUT_OF_RANGE: not kept\n");
}

TEST(GroupCommand, WatchCanWaitForTheGroup) {
  ToolRun tool;
  const absl::Status none = absl::NotFoundError("there is no group g");
  tool.fake.next = {none};
  ToolResult result = tool({"group", "watch", "g"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("--wait"));

  tool.fake.calls.clear();
  tool.fake.next = {none, none};
  EXPECT_EQ(tool({"group", "watch", "g", "--wait", "1m"}).code, 0);
  EXPECT_THAT(tool.fake.calls,
              ElementsAre("GetGroup(g)", "GetGroup(g)", "GetGroup(g)", "WatchGroup(g, 0, inf)"));

  // It waits as long as its flag says, and not longer than the command's timeout.
  tool.fake.calls.clear();
  tool.fake.next = {none, none, none, none, none};
  EXPECT_EQ(tool({"group", "watch", "g", "--wait", "1m", "--timeout", "1s"}).code, 4);
  EXPECT_EQ(tool.fake.calls.size(), 3u);

  // A group that is gone with its coordinator may come back.
  tool.fake.calls.clear();
  tool.fake.next = {absl::OkStatus(), none, none};
  result = tool({"group", "watch", "g", "--wait", "1m"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("(the group was gone); watching on"));
  EXPECT_EQ(tool.fake.calls.size(), 5u);
}

TEST(GroupCommand, WatchEndsWellIfTheGroupClosedBeforeItsLastEventsArrived) {
  ToolRun tool;
  tool.fake.groups = {BrokenGroup()};
  tool.fake.next = {absl::OkStatus(), absl::NotFoundError("there is no group trainer")};
  const ToolResult result = tool({"group", "watch", "trainer"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err,
            "cohort: there is no group trainer; events after revision 17 are not known\n");
}

TEST(GroupCommand, EvictsAndCloses) {
  ToolRun tool;
  EXPECT_EQ(tool({"group", "evict", "g", "rank-3", "--reason", "dead"}).out,
            "evicted rank-3 from group g\n");
  EXPECT_EQ(tool({"group", "close", "g"}).out, "closed group g\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("Evict(g, rank-3, dead)", "CloseGroup(g, )"));
}

TEST(WhoIsMissingCommand, NamesRanksMembersAndSinceWhen) {
  ToolRun tool;
  client::WhoIsMissingReport& report = tool.fake.who_is_missing;
  report.group = "trainer";
  report.generation = 3;
  report.state = client::GroupState::kActive;
  report.world_size = 8;
  EXPECT_EQ(tool({"who-is-missing", "trainer"}).out,
            "group trainer, generation 3, active, 8 ranks\n"
            "no rank is missing: no wait is open\n");

  client::MissingMember member;
  member.rank = 3;
  member.member = "rank-3";
  member.host = "host-a";
  member.last_heard = absl::Milliseconds(400);
  member.attached = true;
  member.last_operation = "send to 2";
  member.last_operation_age = absl::Seconds(41);
  member.progress = 12;
  member.progress_age = absl::Seconds(41);
  client::MissingMember empty_slot;
  empty_slot.rank = 6;
  client::OpenWait wait;
  wait.operation = "barrier \"step\" #812";
  wait.age = absl::Seconds(12);
  wait.remaining = absl::Seconds(18);
  wait.missing.expected_count = 8;
  wait.missing.arrived_count = 5;
  wait.missing.arrived = {{0, 2}, {4, 5}};
  wait.missing.missing = {{3, 3}, {6, 7}};
  wait.missing.details = {member, empty_slot};
  report.waits = {wait};
  report.inits = {{"tensors", {{1, "rank-1", "calling_init", "", absl::Seconds(7)}}}};
  EXPECT_EQ(
      tool({"who-is-missing", "trainer"}).out,
      "group trainer, generation 3, active, 8 ranks\n"
      "\n"
      "barrier \"step\" #812: 3 of 8 missing: ranks 3,6-7; open for 12s, 18s left\n"
      "  RANK  MEMBER        HOST    LAST HEARD            LAST OPERATION       PROGRESS\n"
      "     3  rank-3        host-a  400ms ago (attached)  send to 2 (41s ago)  12 (41s ago)\n"
      "     6  (empty slot)  -       never                 -                    -\n"
      "  and 1 more\n"
      "\n"
      "communicator tensors: not ready on 1 rank\n"
      "  RANK  MEMBER  PHASE         SINCE     DETAIL\n"
      "     1  rank-1  calling_init  7.0s ago  -\n");
  EXPECT_THAT(tool({"who-is-missing", "trainer", "--json"}).out,
              HasSubstr(R"("waits":[{"operation":"barrier \"step\" #812","age_seconds":12.0,)"
                        R"("remaining_seconds":18.0,"missing":{"expected_count":8,)"));
}

TEST(WhoIsMissingCommand, NamesRanksThatAreMissingInOperationsOnTensors) {
  ToolRun tool;
  client::WhoIsMissingReport& report = tool.fake.who_is_missing;
  report.group = "trainer";
  report.generation = 3;
  report.state = client::GroupState::kActive;
  report.world_size = 3;
  client::TensorWait wait;
  wait.operation = "all_reduce #42";
  wait.missing.expected_count = 3;
  wait.missing.arrived_count = 2;
  wait.missing.arrived = {{0, 1}};
  wait.missing.missing = {{2, 2}};
  wait.inside = {{0, 1}};
  wait.waited_for = {{2, 2}};
  wait.age = absl::Seconds(12);
  report.tensor_waits = {wait};
  client::RankReport rank;
  rank.rank = 2;
  rank.member = "rank-2";
  rank.host = "host-a";
  rank.last_heard = absl::Milliseconds(300);
  rank.reported = absl::Seconds(1);
  rank.tensors.moves_tensors = true;
  client::TensorOperation last;
  last.generation = 3;
  last.number = 41;
  last.collective = Collective::kAllReduce;
  last.state = "OK";
  last.begun = absl::Seconds(14);
  last.ended = absl::Seconds(13);
  rank.tensors.last = last;
  report.ranks = {rank};
  ToolResult result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(tool.fake.calls, testing::Contains("WhoIsMissing(trainer, 2s)"));
  EXPECT_EQ(result.out,
            "group trainer, generation 3, active, 3 ranks\n"
            "\n"
            "all_reduce #42: 1 of 3 missing: rank 2; ranks 0-1 are in it, waiting for rank 2; open "
            "for 12s\n"
            "  RANK  MEMBER  HOST    LAST HEARD  SAYS IT IS                                       "
            "SAID\n"
            "     2  rank-2  host-a  300ms ago   in no operation, after all_reduce #41 (14s ago)  "
            "1.0s ago\n");
  result = tool({"who-is-missing", "trainer", "--json"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr(R"("tensor_waits":[{"operation":"all_reduce #42",)"));
  EXPECT_THAT(result.out, HasSubstr(R"("reported_seconds":1.0)"));

  // The member reported a transfer before it was asked.
  client::TensorOperation open;
  open.collective = Collective::kExchange;
  open.peer = 0;
  open.state = "running";
  open.begun = absl::Seconds(4);
  report.ranks[0].tensors.open = open;
  report.unanswered = {{2, 2}};
  report.tensor_waits[0].mismatch = "rank 1 called broadcast";
  result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr("in exchange with rank 0 for 5.0s"));
  EXPECT_THAT(result.out, HasSubstr("1.0s ago; asked, no answer\n"));
  EXPECT_THAT(result.out, HasSubstr("  the ranks disagree: rank 1 called broadcast\n"));
}

TEST(WhoIsMissingCommand, DoesNotClaimCompletenessForSilentMembers) {
  ToolRun tool;
  client::WhoIsMissingReport& report = tool.fake.who_is_missing;
  report.group = "trainer";
  report.state = client::GroupState::kActive;
  report.world_size = 3;
  report.unanswered = {{1, 1}};
  ToolResult result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 5) << "it may hang, or be stopped";
  EXPECT_THAT(result.out, Not(HasSubstr("no rank is missing")));
  EXPECT_THAT(result.out, HasSubstr("not known: what rank 1 is doing now: asked, no answer\n"));
  report.unanswered = {};
  report.unknown = {{0, 2}};
  result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 0) << "clients of other libraries report nothing, ever";
  EXPECT_THAT(result.out, Not(HasSubstr("no rank is missing")));
  EXPECT_THAT(result.out,
              HasSubstr("not known: what ranks 0-2 are doing with tensors: never reported\n"));
  report.unknown = {};
  report.covers_tensors = false;
  result = tool({"who-is-missing", "trainer"});
  EXPECT_THAT(result.out, Not(HasSubstr("no rank is missing")));
  EXPECT_THAT(result.out, HasSubstr("not known: operations on tensors"));
}

TEST(WhoIsMissingCommand, SaysWhatNcclKnows) {
  ToolRun tool;
  client::WhoIsMissingReport& report = tool.fake.who_is_missing;
  report.group = "trainer";
  report.generation = 3;
  report.state = client::GroupState::kActive;
  report.world_size = 8;
  const std::string group =
      "group trainer, generation 3, active, 8 ranks\n"
      "no rank is missing: no wait is open\n";
  EXPECT_EQ(tool({"who-is-missing", "trainer"}).out, group) << "NCCL was not asked for";
  EXPECT_EQ(tool.nccl.timeout, absl::Seconds(3));
  ToolResult result = tool({"who-is-missing", "--nccl-ras", "trainer"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out,
            group + "\nNCCL on this host says nothing: UNAVAILABLE: connection refused\n");
  EXPECT_EQ(tool.nccl.address, "");
  EXPECT_THAT(tool({"who-is-missing", "trainer", "--nccl-ras", "--json"}).out,
              HasSubstr(R"("settling":false,"nccl":{"error":"UNAVAILABLE: connection refused"}})"));

  NcclRasSummary summary;
  summary.version = "2.28.9";
  summary.timeouts = 1;
  summary.communicators = {{"0x1a", 4, {"rank 2 is dead", "rank 3 does not answer"}},
                           {"0x1b", 1, {}}};
  tool.nccl.answer = summary;
  const std::string says = group +
                           "\nNCCL on this host says:\n"
                           "  communicator 0x1a, 4 ranks:\n"
                           "    rank 2 is dead\n"
                           "    rank 3 does not answer\n"
                           "  communicator 0x1b, 1 rank:\n"
                           "    all ranks are there and have launched the same\n"
                           "  not all answered in time: something may be missing here\n";
  EXPECT_EQ(tool({"who-is-missing", "trainer"}).out, says);
  EXPECT_EQ(tool({"who-is-missing", "trainer", "--nccl-ras=[::1]:7", "--timeout", "2s"}).out, says);
  EXPECT_EQ(tool.nccl.address, "[::1]:7");
  EXPECT_EQ(tool.nccl.timeout, absl::Seconds(2));
  EXPECT_THAT(
      tool({"who-is-missing", "trainer", "--json"}).out,
      HasSubstr(R"("nccl":{"version":"2.28.9","timeout_count":1,"communicators":[{"hash":"0x1a",)"
                R"("size":4,"findings":["rank 2 is dead","rank 3 does not answer"]},)"));

  tool.nccl.answer = absl::InvalidArgumentError("\"there\" is no address");
  EXPECT_EQ(tool({"who-is-missing", "trainer", "--nccl-ras=there"}).code, 2);
}

TEST(WhoIsMissingCommand, DoesNotClaimCompletenessBeforeTheCoordinatorKnows) {
  ToolRun tool;
  client::WhoIsMissingReport& report = tool.fake.who_is_missing;
  report.group = "trainer";
  report.generation = 3;
  report.state = client::GroupState::kActive;
  report.world_size = 8;
  tool.fake.stats.uptime = absl::Milliseconds(800);
  const std::string start =
      "the coordinator started 800ms ago: members may not have come back and asked again yet";
  ToolResult result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.out,
            "group trainer, generation 3, active, 8 ranks\n" + start + "; ask again in 4.2s\n");
  result = tool({"who-is-missing", "trainer", "--json"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out, HasSubstr(R"("waits":[],"inits":[],"tensor_waits":[],)"));
  EXPECT_THAT(result.out, HasSubstr(R"("settling":true})"));

  // The named members may just not have come back yet.
  report.waits.emplace_back();
  result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr(start));

  tool.fake.who_is_missing_error = absl::NotFoundError("there is no group trainer");
  result = tool({"who-is-missing", "trainer"});
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.err, "cohort: " + start + "\ncohort: NOT_FOUND: there is no group trainer\n");
  tool.fake.stats.uptime = absl::Seconds(5);
  EXPECT_EQ(tool({"who-is-missing", "trainer"}).err,
            "cohort: NOT_FOUND: there is no group trainer\n");
}

TEST(WaitsCommand, ShowsParkedCalls) {
  ToolRun tool;
  EXPECT_EQ(tool({"waits"}).out, "no calls are parked\n");
  tool.fake.parked = {
      {"g", "rank-0", 0, "receive from 1", absl::Seconds(3), absl::Seconds(27), {{1, 1}}}};
  EXPECT_EQ(tool({"waits", "g"}).out,
            "GROUP  RANK  MEMBER  OPERATION       SINCE     LEFT  WAITS ON\n"
            "g         0  rank-0  receive from 1  3.0s ago  27s   1\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("DumpWaits()", "DumpWaits(g)"));
  // A call in the tenant's own store has no rank.
  tool.fake.parked.push_back({"", "", -1, "get k", absl::Seconds(2), absl::Seconds(1), {}});
  const std::string json = tool({"waits", "--json"}).out;
  EXPECT_THAT(json, HasSubstr(R"("group":"g","member":"rank-0","rank":0,"operation":)"));
  EXPECT_THAT(json, HasSubstr(R"("group":"","member":"","operation":"get k","age_seconds":2.0,)"
                              R"("remaining_seconds":1.0,"waits_on":[]})"));
}

TEST(BarrierCommand, ShowsTheMissingRanksAndThenTheRound) {
  ToolRun tool;
  tool.fake.waiting.expected_count = 2;
  tool.fake.waiting.arrived_count = 1;
  tool.fake.waiting.arrived = {{0, 0}};
  tool.fake.waiting.missing = {{1, 1}};
  tool.join_takes = absl::Milliseconds(3100);
  tool.fake.round.number = 4;
  tool.fake.round.skew = absl::Milliseconds(250);
  const ToolResult result =
      tool({"barrier", "g", "--rank", "0", "--world-size", "2", "--name", "step"});
  EXPECT_EQ(result.out,
            "barrier step #4: 2 ranks arrived, skew 250ms (after 3.1s until all had joined)\n");
  EXPECT_EQ(result.err, "waiting for barrier step: 1 of 2 here (rank 0), missing rank 1\n");
  EXPECT_EQ(tool({"barrier", "g", "--rank", "0", "--world-size", "2", "--json"}).out,
            R"({"group":"g","generation":1,"rank":0,"world_size":2,"name":"","number":4,)"
            R"("join_seconds":3.1,"skew_seconds":0.25})"
            "\n");
}

TEST(ObjectCommand, SendsStandardInput) {
  ToolRun tool;
  tool.input = std::string("a\0b", 3);
  const ToolResult result = tool({"object", "send", "g", "--rank", "0", "--world-size", "2", "--to",
                                  "1", "--tag", "t", "--json"});
  EXPECT_EQ(result.out, "{\"group\":\"g\",\"rank\":0,\"to\":1,\"tag\":\"t\",\"size_bytes\":3}\n");
  EXPECT_THAT(tool.fake.calls,
              ElementsAre("Join(g, 0, 2, )", "Send(" + tool.input + ", 1, t)", "Leave(done)"));
}

TEST(ObjectCommand, SendsNothingWhenTheFileIsNotThere) {
  ToolRun tool;
  const ToolResult result = tool({"object", "send", "g", "--rank", "0", "--world-size", "2", "--to",
                                  "1", TempPath("no-such-file")});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("no-such-file: No such file or directory"));
  EXPECT_THAT(tool.fake.calls, ElementsAre());
}

TEST(ObjectCommand, ReceivesExactBytes) {
  ToolRun tool;
  tool.fake.received.bytes = std::string("x\0\xff", 3);
  tool.fake.received.source = 1;
  const std::vector<std::string> receive = {"object", "recv",         "g", "--rank",
                                            "0",      "--world-size", "2"};
  EXPECT_EQ(tool(receive).out, tool.fake.received.bytes);
  EXPECT_THAT(tool.fake.calls, ElementsAre("Join(g, 0, 2, )", "ReceiveAny()", "Leave(done)"));

  std::vector<std::string> from_one = receive;
  from_one.insert(from_one.end(), {"--from", "1", "--json"});
  EXPECT_EQ(tool(from_one).out,
            R"({"group":"g","rank":0,"from":1,"tag":"","size_bytes":3,"object_base64":"eAD/"})"
            "\n");

  std::vector<std::string> to_file = receive;
  const std::string path = TempPath("received");
  to_file.insert(to_file.end(), {"--output", path});
  EXPECT_EQ(tool(to_file).out, "");
  EXPECT_EQ(ReadFile(path), tool.fake.received.bytes);
}

TEST(ObjectCommand, OnlyTheRootOfABroadcastReadsItsInput) {
  ToolRun tool;
  tool.input = "mine";
  tool.fake.received.bytes = "theirs";
  EXPECT_EQ(
      tool({"object", "broadcast", "g", "--rank", "0", "--world-size", "2", "--root", "0"}).out,
      "broadcast 4 B\n");
  EXPECT_EQ(
      tool({"object", "broadcast", "g", "--rank", "1", "--world-size", "2", "--root", "0"}).out,
      "theirs");
  EXPECT_THAT(tool.fake.calls, ElementsAre("Join(g, 0, 2, )", "Broadcast(mine, 0, )", "Leave(done)",
                                           "Join(g, 1, 2, )", "Broadcast(, 0, )", "Leave(done)"));
}

TEST(ObjectCommand, GathersIntoAFolderIntoJsonOrInARow) {
  ToolRun tool;
  tool.input = "mine";
  tool.fake.objects = {"a", "bc"};
  const std::string dir = TempPath("gathered/deep");
  EXPECT_EQ(tool({"object", "gather", "g", "--rank", "0", "--world-size", "2", "--root", "0",
                  "--output-dir", dir})
                .out,
            "");
  EXPECT_EQ(ReadFile(dir + "/rank-0"), "a");
  EXPECT_EQ(ReadFile(dir + "/rank-1"), "bc");
  EXPECT_EQ(tool({"object", "gather", "g", "--rank", "1", "--world-size", "2", "--root", "0"}).out,
            "gave 4 B to rank 0\n");
  EXPECT_EQ(tool({"object", "all-gather", "g", "--rank", "1", "--world-size", "2"}).out,
            "rank 0: 1 B\na\nrank 1: 2 B\nbc\n");
  EXPECT_EQ(tool({"object", "all-gather", "g", "--rank", "1", "--world-size", "2", "--json"}).out,
            R"({"group":"g","rank":1,"objects":[{"rank":0,"size_bytes":1,"object_base64":"YQ=="},)"
            R"({"rank":1,"size_bytes":2,"object_base64":"YmM="}]})"
            "\n");
}

TEST(StoreCommand, PassesEachFlagOn) {
  ToolRun tool;
  tool.input = "from stdin";
  tool.fake.put.written = true;
  tool.fake.put.revision = 9;
  tool.fake.number = 42;
  EXPECT_EQ(tool({"store", "put", "k", "v"}).out, "revision 9\n");
  EXPECT_EQ(tool({"store", "--group", "g", "put", "k", "-", "--expire", "5m", "--if-revision", "0",
                  "--json"})
                .out,
            "{\"written\":true,\"revision\":9}\n");
  EXPECT_EQ(tool({"store", "add", "k", "-5", "--group", "g"}).out, "42\n");
  EXPECT_EQ(tool({"store", "append", "k", "v"}).out, "42\n");
  EXPECT_EQ(tool({"store", "push", "q", "v"}).out, "sequence 42\n");
  EXPECT_EQ(tool({"store", "push", "q", "v", "--expire", "1s", "--json"}).out,
            "{\"sequence\":42}\n");
  EXPECT_EQ(tool({"store", "delete", "k", "--prefix"}).out, "42\n");
  EXPECT_THAT(tool.fake.calls,
              ElementsAre("MultiPut(, k=v, -, 30s)", "MultiPut(g, k=from stdin@0, 5m, 30s)",
                          "Add(g, k, -5)", "Append(, k, v)", "QueuePush(, q, v, -)",
                          "QueuePush(, q, v, 1s)", "Delete(, k, 1)"));
}

TEST(StoreCommand, SaysThatThereWasNothingToDelete) {
  ToolRun tool;
  const ToolResult result = tool({"store", "delete", "k"});
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "0\n");
  EXPECT_EQ(result.err, "cohort: not there: k\n");
}

TEST(StoreCommand, OneKeyIsAValueAndSeveralAreATable) {
  ToolRun tool;
  tool.fake.get.values = {{"a", "1", 5, 5, absl::Seconds(20)}};
  EXPECT_EQ(tool({"store", "get", "a"}).out, "1");
  tool.fake.get.values.push_back({"b", "two\n", 12, 6, {}});
  EXPECT_EQ(tool({"store", "get", "a", "b", "--wait", "10s"}).out,
            "KEY  REVISION  EXPIRES IN  VALUE\n"
            "a           5  20s         1\n"
            "b          12  -           two\\x0a\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("Get(, a, 0, 30s)", "Get(, a b, 10s, 40s)"));
}

TEST(StoreCommand, SaysWhatStoppedACompareAndSet) {
  ToolRun tool;
  tool.fake.put.revision = 12;
  tool.fake.put.current = client::KeyValue{"k", "old", 7, 3, {}};
  const ToolResult result = tool({"store", "put", "k", "v", "--if-revision", "5", "--json"});
  EXPECT_EQ(result.code, 8);
  EXPECT_EQ(
      result.err,
      "cohort: not written: expected k at revision 5, but it is at revision 7 with value old\n");
  EXPECT_EQ(result.out,
            R"({"written":false,"revision":12,"current":{"key":"k","value":"old","revision":7,)"
            R"("created_revision":3}})"
            "\n");
}

TEST(StoreCommand, PutsSeveralKeysAndComparesAValue) {
  ToolRun tool;
  const ToolResult refused =
      tool({"store", "put", "k", "v", "--if-value", "old", "--also", "a=1=2", "--also", "b="});
  EXPECT_EQ(refused.code, 8);
  EXPECT_EQ(refused.err, "cohort: not written: expected k with value old, but it is absent\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("MultiPut(, k=v?old a=1=2 b=, -, 30s)"));
  EXPECT_EQ(tool({"store", "put", "k", "v", "--also", "pair"}).code, 2);
}

TEST(StoreCommand, ShowsLengthsOfQueuesAndNamesTheEmpty) {
  ToolRun tool;
  tool.fake.get.queue_lengths = {{"q", 3}};
  EXPECT_EQ(tool({"store", "length", "q"}).out, "3\n");
  tool.fake.get.queue_lengths.push_back({"answers", 0});
  const ToolResult both = tool({"store", "length", "q", "answers", "--wait", "5s"});
  EXPECT_EQ(both.code, 3);
  EXPECT_EQ(both.out, "QUEUE    LENGTH\nq             3\nanswers       0\n");
  EXPECT_EQ(both.err, "cohort: empty: answers (waited 5.0s)\n");
  EXPECT_EQ(tool({"store", "length", "q", "answers", "--json"}).out,
            R"({"queue_lengths":[{"queue":"q","length":3},{"queue":"answers","length":0}]})"
            "\n");
  EXPECT_THAT(tool.fake.calls,
              ElementsAre("Get(, , 0, 30s)", "queues(q)", "Get(, , 5s, 35s)", "queues(q answers)",
                          "Get(, , 0, 30s)", "queues(q answers)"));
}

TEST(StoreCommand, ListReadsAllPages) {
  ToolRun tool;
  client::RangeResult first;
  first.values = {{"a", "1", 1, 1, {}}};
  first.next = "a";
  client::RangeResult second;
  second.values = {{"b", "2", 2, 2, {}}};
  second.revision = 2;
  tool.fake.pages = {first, second};
  EXPECT_EQ(tool({"store", "list", "--keys-only"}).out, "a\nb\n");
  EXPECT_EQ(tool({"store", "list", "--keys-only", "--json"}).out,
            "{\"keys\":[\"a\",\"b\"],\"revision\":2}\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("Range(, , , 1)", "Range(, , a, 1)", "Range(, , , 1)",
                                           "Range(, , a, 1)"));
}

TEST(StoreCommand, PopsExactBytesOrSaysThatTheQueueIsEmpty) {
  ToolRun tool;
  tool.fake.item = client::QueueItem{"v", 3};
  EXPECT_EQ(tool({"store", "pop", "q"}).out, "v");
  EXPECT_EQ(tool({"store", "pop", "q", "--json"}).out,
            "{\"found\":true,\"value\":\"v\",\"sequence\":3}\n");
  tool.fake.item.reset();
  const ToolResult result = tool({"store", "pop", "q", "--wait", "5s", "--json"});
  EXPECT_EQ(result.out, "{\"found\":false}\n");
  EXPECT_EQ(result.err, "cohort: queue q is empty\n");
  EXPECT_EQ(tool.fake.calls.back(), "QueuePop(, q, 5s, 35s)");
}

TEST(StoreCommand, WatchesChanges) {
  ToolRun tool;
  client::KeyEvent put;
  put.key_value = {"k", "v", 4, 4, {}};
  client::KeyEvent expired = put;
  expired.deleted = expired.expired = true;
  expired.key_value.revision = 5;
  tool.fake.key_events = {put, expired};
  EXPECT_EQ(tool({"store", "watch", "", "--from", "3"}).out,
            "rev 4  put  k = v\nrev 5  expired  k\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("Range(, , , 1)", "Watch(, , 3, inf)"));
}

TEST(StoreCommand, WatchGoesOnWhenTheCoordinatorHasForgottenTheChanges) {
  ToolRun tool;
  client::RangeResult first, second;
  first.revision = 7;
  second.revision = 70;
  tool.fake.pages = {first, second};
  tool.fake.next = {absl::OkStatus(), absl::OutOfRangeError("not kept")};
  EXPECT_EQ(tool({"store", "watch", "k"}).err,
            "cohort: changes after revision 7 are not known (the coordinator restarted, or "
            "keeps it no longer); "
            "watching on from revision 70\n");
  EXPECT_EQ(tool.fake.calls.back(), "Watch(, k, 70, inf)");
  tool.fake.next = {absl::OkStatus(), absl::OutOfRangeError("not kept")};
  EXPECT_EQ(tool({"store", "watch", "k", "--from", "5"}).code, 1);
}

TEST(AccessCommands, SayWhyAClientMayOrMayNot) {
  ToolRun tool;
  EXPECT_EQ(tool({"can-i", "Join"}).code, 8);
  tool.fake.access = {true, "cohort.v1.GroupService/Join", "token:ci", "a", "member", "operator"};
  const ToolResult may = tool({"can-i", "Join", "--as", "token:ci", "--as", "dns:x"});
  EXPECT_EQ(may.code, 0);
  EXPECT_EQ(may.out,
            "yes: cohort.v1.GroupService/Join needs the role member, and token:ci is operator in "
            "tenant a\n");
  EXPECT_EQ(tool.fake.calls.back(), "CheckAccess(Join, token:ci,dns:x)");
  tool.fake.access = {false, "cohort.v1.AdminService/Drain", "anonymous", "*", "operator", "none"};
  const ToolResult may_not = tool({"can-i", "Drain"});
  EXPECT_EQ(may_not.code, 8);
  EXPECT_EQ(may_not.out,
            "no: cohort.v1.AdminService/Drain needs the role operator, and anonymous has no role "
            "in all tenants\n");
  EXPECT_EQ(
      tool({"can-i", "Drain", "--json"}).out,
      R"({"allowed":false,"method":"cohort.v1.AdminService/Drain","identity":"anonymous","tenant":"*",)"
      R"("needs":"operator","role":"none"})"
      "\n");
  tool.fake.access = {true};
  EXPECT_EQ(tool({"can-i", "Drain"}).out, "yes: the coordinator has no access policy\n");
}

TEST(AccessCommands, CheckAFile) {
  ToolRun tool;
  const std::string path = ::testing::TempDir() + "/policy.json";
  std::ofstream(path) << R"({"rules": [{"identity": "token:*", "tenant": "a", "role": "member"}]})";
  EXPECT_EQ(tool({"policy", "check", path}).out, path + " can be used\n");
  EXPECT_EQ(tool({"policy", "check", path, "--as", "token:ci"}).out,
            "TENANT  ROLE\na       member\n");
  EXPECT_EQ(tool({"policy", "check", path, "--as", "anonymous"}).out, "anonymous has no role\n");
  std::ofstream(path) << R"({"rules": [{"identity": "a*b", "tenant": "a", "role": "member"}]})";
  const ToolResult wrong = tool({"policy", "check", path});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("rule 1: identity must be a text with \"*\" at its end alone"));
}

TEST(DrainCommand, SaysWhatItDid) {
  ToolRun tool;
  tool.fake.drain = {3, 4, 1};
  EXPECT_EQ(tool({"drain"}).out,
            "draining: new groups and joins are refused; 1 group, 4 parked calls\n");
  EXPECT_EQ(tool({"drain", "--now"}).out,
            "draining: new groups and joins are refused; released 3 parked calls; 1 group, "
            "4 parked calls\n");
  EXPECT_EQ(tool({"drain", "--resume", "--json"}).out,
            R"({"draining":false,"released_count":3,"waiter_count":4,"group_count":1})"
            "\n");
  EXPECT_THAT(tool.fake.calls, ElementsAre("Drain(0, 0)", "Drain(1, 0)", "Drain(0, 1)"));
}

TEST(ServerCommand, ShowsTotalsAndLimits) {
  ToolRun tool;
  tool.fake.stats.version = "1.2";
  tool.fake.stats.uptime = absl::Minutes(3);
  tool.fake.stats.journal = "memory";
  EXPECT_EQ(tool({"server", "--coordinator", "h:1"}).out,
            "coordinator   h:1\n"
            "version       1.2\n"
            "incarnation   0\n"
            "state         serving\n"
            "up for        3m0s\n"
            "journal       memory\n"
            "groups        0\n"
            "members       0\n"
            "parked calls  0\n"
            "held          0 B\n"
            "calls         0\n");
  tool.fake.stats.tenants = {{"team-a", 5000, 2, 8, 3, 1}, {"default", 7, 1, 0, 0, 0}};
  tool.fake.stats.tenant_count = 3;
  EXPECT_THAT(tool({"server"}).out,
              HasSubstr("\nTENANT   BYTES  GROUPS  MEMBERS  PARKED CALLS  STREAMS\n"
                        "team-a    5000       2        8             3        1\n"
                        "default      7       1        0             0        0\n"
                        "tenants with fewer bytes: 1\n"));
  EXPECT_THAT(tool({"server", "--json"}).out,
              HasSubstr(R"("tenants":[{"tenant":"team-a","bytes":5000,"group_count":2,)"
                        R"("member_count":8,"waiter_count":3,"stream_count":1},)"));
  tool.fake.limits = {{"max_groups", 100}};
  EXPECT_EQ(tool({"limits", "max_keys=7"}).out,
            "LIMIT       VALUE\n"
            "max_groups    100\n"
            "max_keys        7\n");
  EXPECT_EQ(tool({"limits", "--json"}).out, "{\"limits\":{\"max_groups\":100,\"max_keys\":7}}\n");
  EXPECT_EQ(tool.fake.calls.back(), "Limits()");
}

}  // namespace
}  // namespace cohort::cli
