// Runs `cohort who-is-missing` while ranks hang in operations on tensors: real processes, in each
// form of a rank.
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using nlohmann::json;
using testing::kTimeout;
using testing::Transport;

constexpr char kGroup[] = "weights";
constexpr int kRanks = 3;

class WhoIsMissingTest : public testing::WorkerTest,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    const std::string form = GetParam();
    std::string address = coordinator_.address();
    if (form != "local") {
      StartWorker();
      address = AddressOf(0, Transport::kUnix);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<testing::ChildProcess>(
          std::vector<std::string>{"tests/worker/scripted_rank_main", form, address, kGroup,
                                   absl::StrCat(rank), absl::StrCat(kRanks)}));
    }
    for (const auto& rank : ranks_) {
      const absl::StatusOr<std::string> line = rank->ReadLine(kTimeout);
      ASSERT_TRUE(line.ok()) << line.status() << " " << rank->ErrorText();
      ASSERT_EQ(*line, "joined") << rank->ErrorText();
    }
    // Runs #1 and #2 first, so that a reported number is not right by chance.
    for (int call = 0; call < 2; ++call) {
      for (int rank = 0; rank < kRanks; ++rank) SendCommand(rank, "all_reduce");
      for (int rank = 0; rank < kRanks; ++rank) ExpectDone(rank);
    }
  }
  // A stopped process can be killed as well.
  void TearDown() override { ranks_.clear(); }

  void SendCommand(int rank, const std::string& line) {
    ranks_[static_cast<size_t>(rank)]->WriteLine(line);
  }
  void ExpectDone(int rank) {
    const absl::StatusOr<std::string> line = ranks_[static_cast<size_t>(rank)]->ReadLine(kTimeout);
    ASSERT_TRUE(line.ok()) << "rank " << rank << ": " << line.status();
    EXPECT_EQ(*line, "done OK") << "rank " << rank;
  }
  void Signal(int rank, int signal) { ranks_[static_cast<size_t>(rank)]->Signal(signal); }

  struct Answer {
    int code = -1;
    json report;
  };
  Answer Ask(const std::string& command = "who-is-missing") const {
    testing::ChildProcess tool(
        {"worker/cli/cohort", command, kGroup, "--json", "--coordinator", coordinator_.address()});
    const absl::StatusOr<std::string> line = tool.ReadLine(kTimeout);
    Answer answer;
    answer.code = tool.Wait(kTimeout).value_or(-1);
    EXPECT_TRUE(line.ok()) << line.status() << " " << tool.ErrorText();
    if (line.ok()) answer.report = json::parse(*line);
    return answer;
  }
  // The exit code of the probe of a rank's pod.
  int Probe(int rank, const char* older_than) const {
    testing::ChildProcess tool({"worker/cli/cohort", "who-is-missing", kGroup, "--probe", "--rank",
                                absl::StrCat(rank), "--older-than", older_than, "--coordinator",
                                coordinator_.address()});
    return tool.Wait(kTimeout).value_or(-1);
  }
  // Asks until ranks 0 and 1 are in the operation together, and all ranks but `silent` answer.
  json AskUntilBothHang(const std::string& operation, const json& silent = json::array()) const {
    json found;
    EXPECT_TRUE(testing::Eventually([&] {
      const Answer answer = Ask();
      last_ = answer.report;
      if (answer.code != 3 || answer.report["unanswered"] != silent) return false;
      for (const json& wait : answer.report["tensor_waits"]) {
        if (wait["operation"] != operation) continue;
        const json& arrived = wait["missing"]["arrived"];
        if (!arrived.empty() && arrived[0][0] == 0 && arrived[0][1] >= 1) found = wait;
      }
      return !found.is_null();
    })) << operation
        << "; the last answer: " << last_;
    return found;
  }
  const json& last() const { return last_; }
  static json Ranks(const char* text) { return json::parse(text); }

  std::vector<std::unique_ptr<testing::ChildProcess>> ranks_;

 private:
  mutable json last_;
};

TEST_P(WhoIsMissingTest, NamesTheRankThatDoesNotCall) {
  SendCommand(0, "all_reduce");
  SendCommand(1, "all_reduce");
  const json wait = AskUntilBothHang("all_reduce #3");
  ASSERT_FALSE(wait.is_null());
  EXPECT_EQ(wait["missing"]["missing"], Ranks("[[2,2]]"));
  EXPECT_EQ(wait["inside"], Ranks("[[0,1]]"));
  EXPECT_GT(wait["age_seconds"], 0.1);
  ASSERT_EQ(last()["ranks"].size(), 1u) << last();
  const json& late = last()["ranks"][0];
  EXPECT_EQ(late["rank"], 2);
  EXPECT_EQ(late["last"]["number"], 2);
  EXPECT_FALSE(late.contains("open"));
  if (GetParam() != std::string("local")) {
    const Answer trace = Ask("trace");
    EXPECT_EQ(trace.code, 3) << "it names the rank";
    EXPECT_EQ(trace.report["in_flight"][0]["has_not_come"], Ranks("[[2,2]]"));
  }

  SendCommand(2, "all_reduce");
  for (int rank = 0; rank < kRanks; ++rank) ExpectDone(rank);
  Answer answer;
  // The report may still have the wait for a moment.
  EXPECT_TRUE(testing::Eventually([&] {
    answer = Ask();
    return answer.code == 0;
  })) << answer.report;
  EXPECT_EQ(answer.report["tensor_waits"], json::array());
  EXPECT_EQ(answer.report["unknown"], json::array());
}

TEST_P(WhoIsMissingTest, NamesTheRankThatIsStopped) {
  Signal(2, SIGSTOP);
  SendCommand(0, "all_reduce");
  SendCommand(1, "all_reduce");
  SendCommand(2, "all_reduce");
  // A daemon answers for its client, whose record it reads.
  const bool is_silent = GetParam() == std::string("local");
  const json wait =
      AskUntilBothHang("all_reduce #3", is_silent ? Ranks("[[2,2]]") : json::array());
  ASSERT_FALSE(wait.is_null());
  EXPECT_EQ(wait["missing"]["missing"], Ranks("[[2,2]]"));
  EXPECT_EQ(Probe(2, "100ms"), 3);
  EXPECT_EQ(Probe(2, "1h"), 0);
  EXPECT_EQ(Probe(0, "100ms"), 0) << "it waits itself";
  Signal(2, SIGCONT);
  for (int rank = 0; rank < kRanks; ++rank) ExpectDone(rank);
}

TEST_P(WhoIsMissingTest, NamesTheRankThatIsStoppedInsideAnOperation) {
  SendCommand(2, "all_reduce");
  ASSERT_TRUE(testing::Eventually([&] {
    const Answer answer = Ask();
    return answer.code == 3 && answer.report["tensor_waits"][0]["inside"] == Ranks("[[2,2]]");
  }));
  Signal(2, SIGSTOP);
  // A rank may finish #3 with rank 2's data, but it cannot finish #4.
  for (int call = 3; call <= 4; ++call) {
    SendCommand(0, "all_reduce");
    SendCommand(1, "all_reduce");
  }
  Answer answer;
  EXPECT_TRUE(testing::Eventually([&] {
    answer = Ask();
    if (answer.code != 3) return false;
    for (const json& wait : answer.report["tensor_waits"]) {
      if (wait["missing"]["missing"] == Ranks("[[2,2]]")) return true;
      if (wait["waited_for"] == Ranks("[[2,2]]")) return true;
    }
    return false;
  })) << answer.report;
  Signal(2, SIGCONT);
}

TEST_P(WhoIsMissingTest, NamesTheRankThatIsInATransferMeanwhile) {
  SendCommand(0, "all_reduce");
  SendCommand(1, "all_reduce");
  SendCommand(2, "receive 0");
  const json wait = AskUntilBothHang("all_reduce #3");
  ASSERT_FALSE(wait.is_null());
  EXPECT_EQ(wait["missing"]["missing"], Ranks("[[2,2]]"));
  bool is_named = false;
  for (const json& other : last()["tensor_waits"]) {
    is_named |= other["operation"] == "exchange with rank 0" && other["inside"] == Ranks("[[2,2]]");
  }
  EXPECT_TRUE(is_named) << last();
}

TEST_P(WhoIsMissingTest, NamesTheRankThatWaitsAtTheCoordinatorMeanwhile) {
  SendCommand(0, "all_reduce");
  SendCommand(1, "all_reduce");
  SendCommand(2, "objects");
  const json wait = AskUntilBothHang("all_reduce #3");
  ASSERT_FALSE(wait.is_null());
  EXPECT_EQ(wait["missing"]["missing"], Ranks("[[2,2]]"));
  ASSERT_TRUE(testing::Eventually([&] { return Ask().report["waits"].size() == 1; }));
  const json objects = Ask().report["waits"][0];
  EXPECT_EQ(objects["missing"]["missing"], Ranks("[[0,1]]")) << objects;
}

INSTANTIATE_TEST_SUITE_P(Forms, WhoIsMissingTest,
                         ::testing::Values("local", "attached", "remote"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cohort
