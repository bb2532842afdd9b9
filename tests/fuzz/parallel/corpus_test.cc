// Runs the samples of the message fuzzers and the inputs that they once found, without a fuzzer: in
// every test run, and under the sanitizers.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/fuzz/parallel/entries_check.h"
#include "tests/fuzz/parallel/frame_check.h"

namespace cohort::parallel::fuzz {
namespace {

uint32_t Seed() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                         : std::random_device()();
  std::cerr << "COHORT_TEST_SEED=" << seed << "\n";
  return seed;
}

// Returns the samples, followed by the inputs that the fuzzer found.
std::vector<std::string> Inputs(std::vector<std::string> samples, const std::string& target) {
  const std::string folder = absl::StrCat("tests/fuzz/parallel/corpus/", target);
  if (!std::filesystem::exists(folder)) return samples;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    samples.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return samples;
}

using Check = std::function<absl::Status(absl::string_view, bool*)>;

void ExpectHolds(const std::vector<std::string>& inputs, const Check& check) {
  int accepted_in_all = 0;
  for (const std::string& input : inputs) {
    bool accepted = false;
    const absl::Status status = check(input, &accepted);
    EXPECT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
    accepted_in_all += accepted ? 1 : 0;
  }
  EXPECT_GT(accepted_in_all, 0);
}

// Runs samples with some bytes changed, removed or repeated.
void ExpectHoldsOfChanged(const std::vector<std::string>& samples, const Check& check) {
  std::mt19937 random(Seed());
  for (int round = 0; round < 20000; ++round) {
    std::string input = samples[random() % samples.size()];
    for (size_t n = 1 + random() % 4; n > 0 && !input.empty(); --n) {
      const size_t at = random() % input.size();
      switch (random() % 3) {
        case 0:
          input[at] = static_cast<char>(random());
          break;
        case 1:
          input.erase(at, 1 + random() % 8);
          break;
        default:
          input.insert(at, input.substr(random() % input.size(), 1 + random() % 8));
      }
    }
    const absl::Status status = check(input, nullptr);
    ASSERT_TRUE(status.ok()) << testing::PrintToString(input) << ": " << status.message();
  }
}

TEST(CorpusTest, FramesAreReadOrRefused) {
  ExpectHolds(Inputs(SampleFrames(), "frame"), CheckFrame);
  ExpectHoldsOfChanged(SampleFrames(), CheckFrame);
}

TEST(CorpusTest, EntriesAreReadOrRefused) {
  ExpectHolds(Inputs(SampleEntries(), "entries"), CheckEntries);
  ExpectHoldsOfChanged(SampleEntries(), CheckEntries);
}

}  // namespace
}  // namespace cohort::parallel::fuzz
