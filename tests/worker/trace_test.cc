// Runs `cohort trace` on a real group, whose ranks live in two daemons, or in their own processes.
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/remote/worker_client.h"
#include "client/collective/trace/flight_record.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"
#include "worker/group/local_group.h"

namespace cohort {
namespace {

using client::Group;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;

constexpr Reduction kSum = {ReduceOp::kSum};
constexpr char kGroup[] = "weights";

class TraceTest : public testing::WorkerTest {
 protected:
  // Runs the tool, which must exit with `code`.
  json Trace(int code, const std::vector<std::string>& more) const {
    std::vector<std::string> command = {
        "worker/cli/cohort", "trace", kGroup, "--json", "--coordinator", coordinator_.address()};
    command.insert(command.end(), more.begin(), more.end());
    testing::ChildProcess tool(std::move(command));
    const absl::StatusOr<std::string> line = tool.ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << line.status() << " " << tool.ErrorText();
    EXPECT_EQ(tool.Wait(kTimeout).value_or(-1), code) << tool.ErrorText();
    return line.ok() ? json::parse(*line) : json::object();
  }

  static json ReadJson(const std::string& path) {
    std::ifstream file(path);
    return json::parse(file);
  }
};

absl::Status AllReduceCoalesced(Group& group) {
  COHORT_ASSIGN_OR_RETURN(const Tensor tensor, group.Allocate(DataType::kF32, {256}));
  const Tensor tensors[] = {*tensor.Narrow(0, 0, 100), *tensor.Narrow(0, 100, 156)};
  return group.AllReduceCoalesced(tensors, tensors, kSum);
}

absl::Status AllReduce(Group& group) {
  COHORT_ASSIGN_OR_RETURN(const Tensor tensor, group.Allocate(DataType::kF32, {256}));
  return group.AllReduce(tensor, tensor, kSum);
}

TEST_F(TraceTest, NamesTheLateRankOfTwoDaemonsInOneFile) {
  StartWorker();
  StartWorker();
  // The second rank of the first daemon runs its collectives itself.
  const Groups groups = JoinAll(
      {Connect(0, Transport::kUnix), Connect(0, Transport::kTcp), Connect(1, Transport::kUnix)},
      kGroup, {Transport::kUnix, Transport::kAttached, Transport::kUnix});
  for (const auto& group : groups) ASSERT_NE(group, nullptr);

  const auto worker = client::WorkerClient::Create(AddressOf(0, Transport::kTcp), kTimeout);
  // Waits until both ranks of the first daemon are in the call to which the third rank is late.
  constexpr int64_t kLate = 21;
  const auto both_wait = [&] {
    const auto records = worker->ReadFlightRecords(kGroup);
    if (!records.ok() || records->size() != 2) return false;
    for (const client::FlightRecord& record : *records) {
      if (record.calls.empty() || record.calls.back().number != kLate) return false;
    }
    return true;
  };
  json while_late;
  ExpectOk(OnRanks(groups, [&](Group& group) -> absl::Status {
    for (int i = 0; i < 20; ++i) COHORT_RETURN_IF_ERROR(AllReduce(group));
    if (group.rank() < 2) {
      const Tensor transfer = Tensor::Zeros(DataType::kU8, {8});
      COHORT_RETURN_IF_ERROR(group.rank() == 0 ? group.Send(transfer, 1)
                                               : group.Receive(transfer, 0));
    } else {
      // The third rank is late until the tool has reported why the others wait.
      EXPECT_TRUE(testing::Eventually(both_wait));
      while_late = Trace(3, {});
    }
    COHORT_RETURN_IF_ERROR(AllReduce(group));
    return AllReduceCoalesced(group);
  }));

  ASSERT_EQ(while_late["in_flight"].size(), 1u) << while_late;
  const json& open = while_late["in_flight"][0];
  EXPECT_EQ(open["collective"], "all_reduce");
  EXPECT_EQ(open["call"], kLate) << "a transfer between two is not counted";
  EXPECT_EQ(open["in"], json::parse("[[0,1]]"));
  EXPECT_EQ(open["has_not_come"], json::parse("[[2,2]]"));

  const std::string path = absl::StrCat(testing::NewFolder(), "/trace.json");
  const json report = Trace(0, {"--output", path});
  EXPECT_EQ(report["world_size"], 3);
  EXPECT_EQ(report["call_count"], 22);
  EXPECT_EQ(report["ranks"][0]["from"], AddressOf(0, Transport::kTcp));
  EXPECT_EQ(report["ranks"][1]["call_count"], 23);
  EXPECT_EQ(report["ranks"][2]["from"], AddressOf(1, Transport::kTcp));
  EXPECT_EQ(report["clocks"].size(), 1u) << "of one machine";
  const json& longest = report["longest_waits"][0];
  EXPECT_EQ(longest["call"], kLate);
  EXPECT_EQ(longest["rank"], 2);
  EXPECT_EQ(longest["certain"], true);
  EXPECT_EQ(longest["waits"].size(), 2u);
  EXPECT_EQ(report["in_flight"].size(), 0u);

  const json trace = ReadJson(path);
  std::vector<int> arrows(4);
  std::vector<int> waited_for;
  int slices = 0;
  int coalesced = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "call") ++arrows[event["pid"]];
    if (event["ph"] != "X") continue;
    ++slices;
    if (event["name"] == "all_reduce_coalesced") {
      ++coalesced;
      EXPECT_EQ(event["args"]["bytes"], 1024) << "of all its tensors";
    }
    EXPECT_EQ(event["args"].contains("call"), event["name"] != "exchange");
    if (event["args"].value("call", 0) != kLate) continue;
    EXPECT_EQ(event["args"]["last_rank"], 2);
    if (event["args"].contains("waited_for")) waited_for.push_back(event["args"]["waited_for"]);
  }
  EXPECT_EQ(slices, 22 + 22 + 22 + 2);
  EXPECT_EQ(coalesced, 3);
  EXPECT_THAT(arrows, ElementsAre(0, 22, 22, 22));
  EXPECT_THAT(waited_for, ElementsAre(2, 2));
}

TEST_F(TraceTest, ABarrierIsACallOfAllRanks) {
  StartWorker();
  const Groups groups = JoinAll({Connect(0, Transport::kUnix), Connect(0, Transport::kTcp)}, kGroup,
                                {Transport::kUnix, Transport::kAttached});
  for (const auto& group : groups) ASSERT_NE(group, nullptr);
  const auto worker = client::WorkerClient::Create(AddressOf(0, Transport::kTcp), kTimeout);
  // Waits until the first rank is in the barrier to which the other one is late.
  const auto waits = [&] {
    const auto records = worker->ReadFlightRecords(kGroup);
    if (!records.ok()) return false;
    for (const client::FlightRecord& record : *records) {
      if (record.rank != 0 || record.calls.empty()) continue;
      const client::FlightCall& last = record.calls.back();
      return last.collective == Collective::kBarrier && last.number == 2 && last.state == "running";
    }
    return false;
  };
  ExpectOk(OnRanks(groups, [&](Group& group) -> absl::Status {
    COHORT_RETURN_IF_ERROR(AllReduce(group));
    if (group.rank() == 1) {
      EXPECT_TRUE(testing::Eventually(waits));
    }
    return group.Barrier();
  }));
  const json report = Trace(0, {});
  EXPECT_EQ(report["call_count"], 2);
  EXPECT_EQ(report["different_count"], 0);
  EXPECT_EQ(report["in_flight"].size(), 0u);
}

TEST_F(TraceTest, AnUnreachableRankWritesItsRecord) {
  StartWorker();
  const auto session = Connect(0, Transport::kUnix);
  std::unique_ptr<client::RemoteGroup> remote;
  std::unique_ptr<worker::LocalGroup> local;
  testing::OnThreads(2, [&](int rank) {
    if (rank == 0) {
      auto joined = client::RemoteGroup::Create(GroupOptionsOf(session, kGroup, 0, 2));
      ASSERT_TRUE(joined.ok()) << joined.status();
      remote = *std::move(joined);
    } else {
      worker::LocalGroupOptions options;
      options.membership.connection.address = coordinator_.address();
      options.membership.group = kGroup;
      options.membership.rank = 1;
      options.membership.world_size = 2;
      options.membership.join_timeout = kTimeout;
      options.membership.timeout = kTimeout;
      auto joined = worker::LocalGroup::Create(std::move(options));
      ASSERT_TRUE(joined.ok()) << joined.status();
      local = *std::move(joined);
    }
  });
  ASSERT_TRUE(remote != nullptr && local != nullptr);
  testing::OnThreads(2, [&](int rank) {
    Group& group = rank == 0 ? static_cast<Group&>(*remote) : *local;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(AllReduce(group), absl::OkStatus());
  });

  json report = Trace(3, {});
  ASSERT_EQ(report["missing"].size(), 1u);
  EXPECT_EQ(report["missing"][0]["rank"], 1);
  EXPECT_THAT(report["missing"][0]["why"].get<std::string>(), HasSubstr("no worker"));

  const std::string path = absl::StrCat(testing::NewFolder(), "/rank-1.json");
  ASSERT_EQ(client::WriteFlightRecords(path, {local->ExportFlightRecord()}), absl::OkStatus());
  report = Trace(0, {"--file", path});
  EXPECT_EQ(report["call_count"], 5);
  EXPECT_EQ(report["clocks"].size(), 1u);
  EXPECT_EQ(report["ranks"][1]["call_count"], 5);
  EXPECT_EQ(report["ranks"][1]["from"], path);
  // If the workers are given, the coordinator need not run.
  report = Trace(0, {"--offline", "--worker", AddressOf(0, Transport::kTcp), "--file", path});
  EXPECT_EQ(report["world_size"], 2);
}

}  // namespace
}  // namespace cohort
