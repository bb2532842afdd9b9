// Runs the samples of the data plane's fuzzers and the inputs that they once found, without a
// fuzzer: in every test run, and under the sanitizers.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "tests/fuzz/worker/attach_check.h"
#include "tests/fuzz/worker/call_check.h"
#include "tests/fuzz/worker/connections_check.h"
#include "tests/fuzz/worker/peer_check.h"
#include "tests/fuzz/worker/queue_check.h"

namespace cohort::worker::fuzz {
namespace {

// Returns the samples, followed by the inputs that the fuzzer found.
std::vector<std::string> Inputs(std::vector<std::string> samples, const std::string& target) {
  const std::string folder = absl::StrCat("tests/fuzz/worker/corpus/", target);
  if (!std::filesystem::exists(folder)) return samples;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    samples.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return samples;
}

TEST(CorpusTest, AttachingClientsGetAnswersAndLeaveNothing) {
  AttachCounts counts;
  for (const std::string& input : Inputs(SampleAttaches(), "attach")) {
    const absl::Status status = CheckAttach(input, &counts);
    EXPECT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
  }
  EXPECT_GT(counts.accepted, 0);
  EXPECT_GT(counts.refused, 0);
}

TEST(CorpusTest, SentConnectionsAreTakenOrRefused) {
  int taken_in_all = 0;
  for (const std::string& input : Inputs(SampleConnections(), "connections")) {
    bool taken = false;
    const absl::Status status = CheckReceiveConnections(input, &taken);
    EXPECT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
    taken_in_all += taken ? 1 : 0;
  }
  EXPECT_GT(taken_in_all, 0);
}

TEST(CorpusTest, CallsStayWithinTheirTensors) {
  auto* const before = google::protobuf::SetLogHandler(nullptr);
  int done_in_all = 0;
  for (const std::string& input : Inputs(SampleCalls(), "call")) {
    bool done = false;
    const absl::Status status = CheckCall(input, &done);
    EXPECT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
    done_in_all += done ? 1 : 0;
  }
  EXPECT_GT(done_in_all, 0);
  google::protobuf::SetLogHandler(before);
}

TEST(CorpusTest, APeerCanOnlyEndTheCall) {
  int done = 0;
  for (const std::string& input : Inputs(SamplePeers(), "peer")) {
    const absl::Status status = CheckPeer(input, &done);
    EXPECT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
  }
  EXPECT_GT(done, 0);
}

TEST(CorpusTest, AQueueChecksTheBytesOfItsPeer) {
  auto* const before = google::protobuf::SetLogHandler(nullptr);
  int done = 0;
  for (const std::string& input : Inputs(SampleQueues(), "queue")) {
    const absl::Status status = CheckQueue(input, &done);
    EXPECT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
  }
  EXPECT_GT(done, 0);
  google::protobuf::SetLogHandler(before);
}

}  // namespace
}  // namespace cohort::worker::fuzz
