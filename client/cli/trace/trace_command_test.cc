#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/testing/tool_run.h"
#include "client/collective/trace/flight_record.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

std::string Here() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string TempPath(const std::string& name) { return testing::TempDir() + "/trace_" + name; }

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Two calls of all ranks, which the rank begins after so many milliseconds.
client::FlightRecord Record(int rank, int world_size, int64_t late) {
  client::FlightRecord record;
  record.group = "weights";
  record.generation = 2;
  record.rank = rank;
  record.world_size = world_size;
  record.host = "host-a";
  record.pid = 100 + rank;
  record.clock = "a";
  record.taken = kStart + absl::Seconds(2);
  for (int64_t number = 1; number <= 2; ++number) {
    client::FlightCall call;
    call.sequence = number;
    call.number = number;
    call.generation = 2;
    call.collective = Collective::kAllReduce;
    call.bytes = 4096;
    call.started = kStart + absl::Milliseconds(100 * number + late);
    call.finished = kStart + absl::Milliseconds(100 * number + 50);
    call.state = "OK";
    record.calls.push_back(call);
  }
  return record;
}

client::Member MemberOf(int rank, const std::string& host, std::vector<std::string> addresses) {
  client::Member member;
  member.name = absl::StrCat("m", rank);
  member.rank = rank;
  member.state = client::MemberState::kActive;
  member.host = host;
  member.addresses = std::move(addresses);
  if (!member.addresses.empty()) member.labels["cohort.worker"] = "17";
  return member;
}

client::GroupInfo Group(std::vector<client::Member> members) {
  client::GroupInfo group;
  group.name = "weights";
  group.generation = 2;
  group.world_size = static_cast<int>(members.size());
  group.members = std::move(members);
  return group;
}

TEST(TraceCommand, AsksTheWorkersThatTheCoordinatorKnowsOf) {
  ToolRun tool;
  tool.fake.groups = {Group({MemberOf(0, "far", {"unix:/w", "127.0.0.1:1", "10.0.0.9:7800"}),
                             MemberOf(1, "far", {"unix:/w", "127.0.0.1:1", "10.0.0.9:7800"}),
                             MemberOf(2, Here(), {"10.0.0.8:7800", "unix:/v"})})};
  tool.fake.flights_at = {
      {"10.0.0.9:7800", std::vector<client::FlightRecord>{Record(0, 3, 0), Record(1, 3, 7)}},
      {"unix:/v", absl::UnavailableError("no")},
      {"10.0.0.8:7800", std::vector<client::FlightRecord>{Record(2, 3, 1)}}};
  const std::string path = TempPath("all.json");
  const ToolResult result = tool({"trace", "weights", "-o", path});
  EXPECT_EQ(result.code, 0) << result.err;
  // Each worker is asked once, on this host through its Unix socket first.
  EXPECT_THAT(tool.fake.calls,
              UnorderedElementsAre("GetGroup(weights)", "Worker(10.0.0.9:7800, 10s)",
                                   "ReadFlightRecords(weights)", "Worker(unix:/v, 10s)",
                                   "ReadFlightRecords(weights)", "Worker(10.0.0.8:7800, 10s)",
                                   "ReadFlightRecords(weights)"));
  EXPECT_THAT(result.out, HasSubstr("group weights, generation 2: 2 calls of all, as 3 of 3 ranks "
                                    "had them; "));
  EXPECT_THAT(result.out, HasSubstr("         2     1  all_reduce  4.0 KiB     7ms  rank 1\n"));
  EXPECT_THAT(result.out, HasSubstr("1  10.0.0.9:7800  host-a      2        2        14ms\n"));
  const auto trace = nlohmann::json::parse(ReadAll(path));
  EXPECT_EQ(trace["otherData"]["group"], "weights");
}

TEST(TraceCommand, SaysWhyARanksRecordIsMissing) {
  ToolRun tool;
  client::Member lost = MemberOf(4, "far", {});
  lost.state = client::MemberState::kLost;
  tool.fake.groups = {
      Group({MemberOf(0, "far", {"10.0.0.9:7800"}), MemberOf(1, "far", {"10.0.0.9:7800"}),
             MemberOf(2, "far", {"127.0.0.1:7800"}), MemberOf(3, "far", {}), lost,
             MemberOf(5, "far", {"10.0.0.7:7800"})})};
  tool.fake.groups[0].world_size = 7;
  tool.fake.flights_at = {
      {"10.0.0.9:7800", std::vector<client::FlightRecord>{Record(0, 7, 0)}},
      {"10.0.0.7:7800", absl::UnavailableError("the worker at 10.0.0.7:7800: refused")}};
  ToolResult result = tool({"trace", "weights"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr("as 1 of 7 ranks had it\n"));
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 1 (m1 on far): the worker at 10.0.0.9:7800 "
                                    "does not have it\n"));
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 2 (m2 on far): its worker can be asked on "
                                    "far alone, at 127.0.0.1:7800"));
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 3 (m3 on far): it lives in no worker"));
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 4 (m4 on far): it is lost\n"));
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 5 (m5 on far): the worker at 10.0.0.7:7800: "
                                    "refused\n"));
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 6: no member has this rank\n"));
  result = tool({"trace", "weights", "--json"});
  EXPECT_EQ(result.code, 3);
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["missing"].size(), 6u);
  EXPECT_EQ(json["missing"][5]["rank"], 6);
  EXPECT_EQ(json["ranks"][0]["from"], "10.0.0.9:7800");
}

TEST(TraceCommand, FilesStandForRanksThatCannotBeAsked) {
  ToolRun tool;
  tool.fake.groups = {Group({MemberOf(0, "far", {"10.0.0.9:7800"}), MemberOf(1, "far", {})})};
  tool.fake.flights_at = {{"10.0.0.9:7800", std::vector<client::FlightRecord>{Record(0, 2, 0)}}};
  const std::string saved = TempPath("saved.json");
  EXPECT_EQ(tool({"trace", "weights", "--records", saved}).code, 3);
  const std::string own = TempPath("own.json");
  ASSERT_TRUE(client::WriteFlightRecords(own, {Record(1, 2, 30)}).ok());
  ToolResult result = tool({"trace", "weights", "--file", own});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("30ms  rank 1\n"));

  // Without a coordinator, the ranks' records give their number.
  tool.fake.calls.clear();
  result = tool({"trace", "weights", "--offline", "--file", own, "--file", saved});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(tool.fake.calls, testing::IsEmpty());
  EXPECT_THAT(result.out, HasSubstr("as 2 of 2 ranks had them"));
  result = tool({"trace", "weights", "--offline", "--file", own});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr("nothing of rank 0: no --file has it"));

  tool.fake.next = {absl::NotFoundError("no group weights")};
  result = tool({"trace", "weights", "--file", own, "--file", saved});
  EXPECT_EQ(result.code, 0) << "a dead group's records are worth as much";
  EXPECT_THAT(result.err, HasSubstr("no group weights"));
  tool.fake.next = {absl::NotFoundError("no group weights")};
  EXPECT_EQ(tool({"trace", "weights"}).code, 4);
}

TEST(TraceCommand, InvalidFilesAreNamed) {
  ToolRun tool;
  tool.fake.groups = {Group({MemberOf(0, "far", {})})};
  const std::string path = TempPath("bad.json");
  std::ofstream(path) << "{}";
  ToolResult result = tool({"trace", "weights", "--file", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(path));
  ASSERT_TRUE(client::WriteFlightRecords(path, {Record(0, 1, 0)}).ok());
  result = tool({"trace", "other", "--file", path});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("they are of weights"));
  result = tool({"trace", "weights", "--tenant", "t", "--file", path});
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(tool({"trace", "weights", "--file", TempPath("none")}).code, 4);
  EXPECT_EQ(tool({"trace", "weights", "--offline"}).code, 2);
  EXPECT_EQ(tool({"trace", "weights", "--top", "-1"}).code, 2);
  EXPECT_EQ(tool({"trace"}).code, 2);
}

TEST(TraceCommand, WorkersThatAreGivenAreAskedInPlaceOfOthers) {
  ToolRun tool;
  tool.fake.groups = {Group({MemberOf(0, "far", {"10.0.0.9:7800"}), MemberOf(1, "far", {})})};
  tool.fake.flights_at = {
      {"b:2", std::vector<client::FlightRecord>{Record(0, 2, 0), Record(1, 2, 3)}},
      {"c:3", absl::UnavailableError("the worker at c:3: refused")}};
  ToolResult result = tool({"trace", "weights", "--worker", "b:2", "--timeout", "3s"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(tool.fake.calls, Contains("Worker(b:2, 3s)"));
  EXPECT_THAT(tool.fake.calls, Not(Contains("Worker(10.0.0.9:7800, 3s)")));
  tool.fake.flights_at["b:2"] = std::vector<client::FlightRecord>{Record(0, 2, 0)};
  result = tool({"trace", "weights", "--worker", "b:2", "--worker", "c:3"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out,
              HasSubstr("no --worker that answered has it; the worker at c:3: refused"));
}

TEST(TraceCommand, ARankThatHasNotComeToACallIsMissing) {
  ToolRun tool;
  client::FlightRecord hangs = Record(0, 2, 0);
  client::FlightCall open = hangs.calls.back();
  open.number = 3;
  open.started = kStart + absl::Seconds(1);
  open.finished.reset();
  open.state = "running";
  hangs.calls.push_back(open);
  tool.fake.groups = {Group({MemberOf(0, "far", {"a:1"}), MemberOf(1, "far", {"a:1"})})};
  tool.fake.flights_at = {{"a:1", std::vector<client::FlightRecord>{hangs, Record(1, 2, 1)}}};
  ToolResult result = tool({"trace", "weights"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr("rank 1 has not come\n"));
  // All ranks have come: they work.
  client::FlightRecord works = Record(1, 2, 1);
  works.calls.push_back(open);
  tool.fake.flights_at = {{"a:1", std::vector<client::FlightRecord>{hangs, works}}};
  EXPECT_EQ(tool({"trace", "weights"}).code, 0);
}

TEST(TraceCommand, ShowsClocksAndWhatIsInFlight) {
  ToolRun tool;
  client::FlightRecord ahead = Record(1, 3, 1);
  ahead.host = "host-b";
  ahead.clock = "b";
  ahead.taken += absl::Seconds(60);
  for (client::FlightCall& call : ahead.calls) {
    call.started += absl::Seconds(60);
    *call.finished += absl::Seconds(60);
  }
  client::FlightRecord hangs = Record(0, 3, 0);
  client::FlightCall open = hangs.calls.back();
  open.collective = Collective::kAllGather;
  open.number = 3;
  open.started = kStart + absl::Seconds(1);
  open.finished.reset();
  open.state = "running";
  hangs.calls.push_back(open);
  tool.fake.groups = {
      Group({MemberOf(0, "far", {"a:1"}), MemberOf(1, "far", {"b:1"}), MemberOf(2, "far", {})})};
  tool.fake.flights_at = {{"a:1", std::vector<client::FlightRecord>{hangs}},
                          {"b:1", std::vector<client::FlightRecord>{ahead}}};
  ToolResult result = tool({"trace", "weights"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr("CLOCK AHEAD\n"));
  EXPECT_THAT(result.out, HasSubstr("+1m0s (+-49ms)\n"));
  EXPECT_THAT(result.out, HasSubstr("all_gather, call 3 of generation 2: rank 0 is in it since "
                                    "1.0s; rank 1 has not come\n"));
  auto json = nlohmann::json::parse(tool({"trace", "weights", "--json"}).out);
  EXPECT_NEAR(json["clocks"][1]["ahead_seconds"].get<double>(), 60, 0.05);
  EXPECT_LE(json["clocks"][1]["least_seconds"].get<double>(), 60);
  EXPECT_GE(json["clocks"][1]["most_seconds"].get<double>(), 60);
  EXPECT_EQ(json["in_flight"][0]["has_not_come"][0][0], 1);
  json = nlohmann::json::parse(tool({"trace", "weights", "--json", "--raw-clocks"}).out);
  EXPECT_FALSE(json["clocks"][1].contains("ahead_seconds"));
  EXPECT_NEAR(json["longest_waits"][0]["wait_seconds"].get<double>(), 60, 0.01);
  EXPECT_THAT(tool({"trace", "weights", "--raw-clocks"}).out,
              HasSubstr("rank 1, if the clocks are right\n"));
}

// Only the root of a broadcast bounds the clocks of the others: they end after it began.
TEST(TraceCommand, ShowsClocksThatAreKnownFromOneSide) {
  struct Case {
    Collective collective;
    int root;
    std::string text;
  };
  const Case cases[] = {
      {Collective::kBroadcast, 0, "-550ms (-550ms at most)\n"},
      {Collective::kBroadcast, 1, "+0s (-650ms at least)\n"},
      {Collective::kExchange, 0, "not known: no call in common\n"},
  };
  for (const Case& one : cases) {
    ToolRun tool;
    std::vector<client::FlightRecord> records;
    for (int rank = 0; rank < 2; ++rank) {
      records.push_back(Record(rank, 2, 0));
      if (rank == 1) records.back().clock = "b";
      for (client::FlightCall& call : records.back().calls) {
        call.collective = one.collective;
        call.root = one.root;
        if (rank == 0) continue;
        call.started -= absl::Milliseconds(600);
        *call.finished -= absl::Milliseconds(600);
      }
    }
    tool.fake.groups = {Group({MemberOf(0, "far", {"a:1"}), MemberOf(1, "far", {"b:1"})})};
    tool.fake.flights_at = {{"a:1", std::vector<client::FlightRecord>{records[0]}},
                            {"b:1", std::vector<client::FlightRecord>{records[1]}}};
    EXPECT_THAT(tool({"trace", "weights"}).out, HasSubstr(one.text)) << one.text;
  }
}

}  // namespace
}  // namespace cohort::cli
