// Runs the samples of these fuzzers and the inputs that they once found, without a fuzzer: in every
// test run, and under the sanitizers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/fuzz/access/field_count_check.h"
#include "tests/fuzz/access/http2_guard_check.h"
#include "tests/fuzz/access/jwt_check.h"
#include "tests/fuzz/access/names_check.h"
#include "tests/fuzz/access/policy_check.h"
#include "tests/fuzz/access/tls_check.h"
#include "tests/fuzz/access/token_check.h"

namespace cohort::coordinator::fuzz {
namespace {

using Inputs = std::map<std::string, std::string>;

// Returns the samples and the inputs of the corpus.
Inputs InputsOf(const std::string& target, Inputs samples) {
  const std::string folder = absl::StrCat("tests/fuzz/access/corpus/", target);
  if (!std::filesystem::exists(folder)) return samples;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    samples[entry.path().filename().string()] =
        std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return samples;
}

std::minstd_rand NewRandom() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  const auto seed = static_cast<uint32_t>(given != nullptr ? std::strtoul(given, nullptr, 10)
                                                           : std::random_device()());
  std::printf("COHORT_TEST_SEED=%u\n", seed);
  return std::minstd_rand(seed);
}

// One of the inputs with up to three other bytes.
std::string Mutated(const Inputs& inputs, std::minstd_rand& random) {
  std::string input = std::next(inputs.begin(), random() % inputs.size())->second;
  for (size_t n = 1 + random() % 3; n > 0 && !input.empty(); --n) {
    input[random() % input.size()] = static_cast<char>(random());
  }
  return input;
}

TEST(CorpusTest, TlsClientsAreServedOrRefused) {
  TlsCounts counts;
  for (const auto& [name, input] : InputsOf("tls", SampleTlsInputs())) {
    const absl::Status status = CheckTls(input, &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_GT(counts.handshakes, 5);
  EXPECT_GT(counts.answered, 10);
  EXPECT_GT(counts.silent, 0);
}

TEST(CorpusTest, TokensGiveTheirRightsAlone) {
  TokenCounts counts;
  for (const auto& [name, input] : InputsOf("token", SampleTokens())) {
    const absl::Status status = CheckToken(input, &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_GE(counts.accepted, 4);
  EXPECT_GT(counts.refused, 10);
}

TEST(CorpusTest, SignedTokensNameTheirSubjects) {
  cohort::fuzz::JwtCounts counts;
  for (const auto& [name, input] : InputsOf("jwt", cohort::fuzz::SampleJwts())) {
    const absl::Status status = cohort::fuzz::CheckJwt(input, &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_GE(counts.accepted, 3);
  EXPECT_GE(counts.refused, 17);
  EXPECT_GE(counts.key_sets, 3);
}

TEST(CorpusTest, NamesAreTakenOrRefused) {
  cohort::fuzz::NameCounts counts;
  for (const auto& [name, input] : InputsOf("names", cohort::fuzz::SampleNames())) {
    const absl::Status status = cohort::fuzz::CheckNames(input, &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_GE(counts.lists, 1);
  EXPECT_GE(counts.ids, 1);
  EXPECT_GE(counts.headers, 6);
  EXPECT_GE(counts.refused, 5);
}

TEST(CorpusTest, PoliciesAreTakenOrRefused) {
  int accepted_in_all = 0;
  for (const auto& [name, input] : InputsOf("policy", cohort::fuzz::SamplePolicies())) {
    bool accepted = false;
    const absl::Status status = cohort::fuzz::CheckPolicy(input, &accepted);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    accepted_in_all += accepted ? 1 : 0;
  }
  EXPECT_GE(accepted_in_all, 5);
}

TEST(CorpusTest, FramesOfHttp2AreCounted) {
  cohort::fuzz::Http2Counts counts;
  for (const auto& [name, input] : InputsOf("http2_guard", cohort::fuzz::SampleHttp2())) {
    const absl::Status status = cohort::fuzz::CheckHttp2Guard(input, &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_GE(counts.refused, 4);
  EXPECT_GE(counts.requests, 6);
  EXPECT_GE(counts.streams, 4);
}

TEST(CorpusTest, FieldsAreCounted) {
  cohort::fuzz::FieldCounts counts;
  for (const auto& [name, input] : InputsOf("field_count", cohort::fuzz::SampleRequests())) {
    const absl::Status status = cohort::fuzz::CheckFields(input, &counts);
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  EXPECT_EQ(counts.refused, 4);
  EXPECT_GE(counts.parsed, 8);
  EXPECT_GE(counts.fields, 40);
}

TEST(RandomInputTest, MutatedTlsClientsAreServedOrRefused) {
  std::minstd_rand random = NewRandom();
  const Inputs inputs = SampleTlsInputs();
  for (int round = 0; round < 200; ++round) {
    const absl::Status status = CheckTls(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedTokensGiveNoRights) {
  std::minstd_rand random = NewRandom();
  const Inputs inputs = SampleTokens();
  for (int round = 0; round < 1000; ++round) {
    const absl::Status status = CheckToken(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedSignedTokensNameTheirSubjects) {
  std::minstd_rand random = NewRandom();
  const Inputs inputs = cohort::fuzz::SampleJwts();
  for (int round = 0; round < 1000; ++round) {
    const absl::Status status = cohort::fuzz::CheckJwt(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedNamesAreTakenOrRefused) {
  std::minstd_rand random = NewRandom();
  const Inputs inputs = cohort::fuzz::SampleNames();
  for (int round = 0; round < 10000; ++round) {
    const absl::Status status = cohort::fuzz::CheckNames(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedFramesOfHttp2AreCounted) {
  std::minstd_rand random = NewRandom();
  const Inputs inputs = cohort::fuzz::SampleHttp2();
  for (int round = 0; round < 10000; ++round) {
    const absl::Status status = cohort::fuzz::CheckHttp2Guard(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedFieldsAreCounted) {
  std::minstd_rand random = NewRandom();
  const Inputs inputs = cohort::fuzz::SampleRequests();
  for (int round = 0; round < 10000; ++round) {
    const absl::Status status = cohort::fuzz::CheckFields(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

TEST(RandomInputTest, MutatedPoliciesAreTakenOrRefused) {
  std::minstd_rand random = NewRandom();
  Inputs inputs;
  for (const auto& [name, input] : cohort::fuzz::SamplePolicies()) {
    if (input.size() < 4096) inputs[name] = input;
  }
  for (int round = 0; round < 1000; ++round) {
    const absl::Status status = cohort::fuzz::CheckPolicy(Mutated(inputs, random));
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
  }
}

}  // namespace
}  // namespace cohort::coordinator::fuzz
