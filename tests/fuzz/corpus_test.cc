// Runs the fuzzers' samples and the inputs that they once found, without a fuzzer: in every test
// run, and under the sanitizers.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/framed_rpc_check.h"
#include "tests/fuzz/mutators/framed_rpc_mutator.h"
#include "tests/fuzz/mutators/script_mutator.h"
#include "tests/fuzz/samples/sample_framed_rpc_scripts.h"
#include "tests/fuzz/samples/sample_inputs.h"
#include "tests/fuzz/scripts/script_runner.h"
#include "tests/fuzz/tcpstore_check.h"

namespace cohort::coordinator::fuzz {
namespace {

using Inputs = std::map<std::string, std::string>;

Inputs ReadCorpus(const std::string& target) {
  Inputs inputs;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("tests/fuzz/corpus/", target))) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs[entry.path().filename().string()] =
        std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

uint64_t Seed() {
  const char* given = std::getenv("COHORT_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::printf("COHORT_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// A log line for each string that is not UTF-8 would hide the failure.
class QuietParser {
 public:
  QuietParser() : before_(google::protobuf::SetLogHandler(nullptr)) {}
  ~QuietParser() { google::protobuf::SetLogHandler(before_); }

 private:
  google::protobuf::LogHandler* const before_;
};

TEST(CorpusTest, RequestsKeepTheInvariants) {
  const QuietParser quiet;
  const Inputs corpus = ReadCorpus("request");
  ASSERT_FALSE(corpus.empty());
  ScriptCounts counts;
  for (const auto& [name, input] : corpus) {
    const absl::Status status = RunScript(ParseScript(input), &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  // A corpus whose calls are all refused says little.
  EXPECT_GT(counts.answered, counts.refused / 2);
}

TEST(CorpusTest, DecodingKeepsTheBounds) {
  const QuietParser quiet;
  const Inputs corpus = ReadCorpus("decode");
  ASSERT_FALSE(corpus.empty());
  std::set<int> accepted_methods;
  for (const auto& [name, input] : corpus) {
    bool accepted = false;
    const absl::Status status = CheckDecode(input, &accepted);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    if (accepted) accepted_methods.insert(static_cast<uint8_t>(input[0]));
  }
  EXPECT_GT(accepted_methods.size(), kMethodCount / 2);
}

TEST(CorpusTest, FramesKeepTheirPromises) {
  const QuietParser quiet;
  const Inputs corpus = ReadCorpus("framed_rpc");
  ASSERT_FALSE(corpus.empty());
  FramedRpcCounts counts;
  for (const auto& [name, input] : corpus) {
    const absl::Status status = CheckFramedRpc(ParseFramedRpcScript(input), &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_GT(counts.answered, 0);
  EXPECT_GT(counts.refused, 0);
  EXPECT_GT(counts.closed, 0);
}

TEST(CorpusTest, TcpStoreRequestsAreReadOrRefused) {
  const Inputs corpus = ReadCorpus("tcpstore");
  ASSERT_FALSE(corpus.empty());
  std::vector<tcpstore::Operation> operations;
  for (const auto& [name, input] : corpus) {
    const absl::Status status = CheckTcpStore(input, &operations);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  const std::set<tcpstore::Operation> seen(operations.begin(), operations.end());
  EXPECT_EQ(seen.size(), static_cast<size_t>(tcpstore::Operation::kBarrier) + 1);
}

TEST(CorpusTest, MatchesTheGenerator) {
  const auto expect_in = [](const Inputs& made, const Inputs& kept) {
    for (const auto& [name, input] : made) {
      const auto it = kept.find(name);
      EXPECT_TRUE(it != kept.end() && it->second == input)
          << name << " is stale: bazel run //tests/fuzz:make_corpus -- $PWD/tests/fuzz/corpus";
    }
  };
  expect_in(SampleDecodeInputs(), ReadCorpus("decode"));
  expect_in(SampleRequestInputs(), ReadCorpus("request"));
  expect_in(SampleFramedRpcInputs(), ReadCorpus("framed_rpc"));
  expect_in(SampleTcpStoreInputs(), ReadCorpus("tcpstore"));
}

// Every method is in the corpus, so that a new one cannot be forgotten.
TEST(CorpusTest, CoversEveryMethod) {
  std::set<size_t> seen;
  for (const auto& [name, input] : SampleRequestInputs()) {
    for (const ScriptStep& step : ParseScript(input).steps) seen.insert(step.action);
  }
  EXPECT_EQ(seen.size(), kActionCount);
}

TEST(ScriptTest, IsTheSameAfterARoundTrip) {
  for (const auto& [name, input] : SampleRequestInputs()) {
    EXPECT_EQ(SerializeScript(ParseScript(input)), input) << name;
  }
  for (const auto& [name, input] : SampleFramedRpcInputs()) {
    EXPECT_EQ(SerializeFramedRpcScript(ParseFramedRpcScript(input)), input) << name;
  }
}

TEST(RandomInputTest, BytesAreDecodedOrRefused) {
  const QuietParser quiet;
  Random random(Seed());
  for (int round = 0; round < 100000; ++round) {
    std::string input(2 + random() % 64, '\0');
    for (char& byte : input) byte = static_cast<char>(random());
    const absl::Status status = CheckDecode(input);
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(RandomInputTest, MutatedTcpStoreRequestsAreReadOrRefused) {
  Random random(Seed());
  const Inputs corpus = SampleTcpStoreInputs();
  for (int round = 0; round < 10000; ++round) {
    std::string input = std::next(corpus.begin(), random() % corpus.size())->second;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      input[random() % input.size()] = static_cast<char>(random());
    }
    const absl::Status status = CheckTcpStore(input);
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedScriptsKeepTheInvariants) {
  const QuietParser quiet;
  Random random(Seed());
  const Inputs corpus = SampleRequestInputs();
  for (int round = 0; round < 500; ++round) {
    RequestScript script = ParseScript(std::next(corpus.begin(), random() % corpus.size())->second);
    for (size_t n = 1 + random() % 20; n > 0; --n) MutateScript(random, &script);
    const absl::Status status = RunScript(script);
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedFramesKeepTheirPromises) {
  const QuietParser quiet;
  Random random(Seed());
  const Inputs corpus = SampleFramedRpcInputs();
  for (int round = 0; round < 500; ++round) {
    FramedRpcScript script =
        ParseFramedRpcScript(std::next(corpus.begin(), random() % corpus.size())->second);
    for (size_t n = 1 + random() % 20; n > 0; --n) MutateFramedRpcScript(random, &script);
    const absl::Status status = CheckFramedRpc(script);
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

}  // namespace
}  // namespace cohort::coordinator::fuzz
