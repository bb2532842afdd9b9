#include "client/checkpoint/checksums.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::checkpoint {
namespace {

using ::testing::ElementsAre;

// The check value of every CRC-32.
TEST(ChecksumsTest, MatchPublishedValues) { EXPECT_EQ(Crc32("123456789"), 0xcbf43926u); }

TEST(ChecksumsTest, DoNotDependOnHowTheBytesCome) {
  const std::string header = FormatHeader({{"a", DataType::kU8, {5}},
                                           {"none", DataType::kU8, {0}},
                                           {"b", DataType::kU8, {4}},
                                           {"last", DataType::kF32, {2, 0}}},
                                          {});
  const std::string data = "abcde1234";
  const auto layout = ParseHeader(header, static_cast<int64_t>(header.size() + data.size()));
  ASSERT_TRUE(layout.ok()) << layout.status();
  for (size_t step = 1; step <= data.size(); ++step) {
    Checksums checksums(*layout);
    for (size_t at = 0; at < data.size(); at += step) checksums.Add(data.substr(at, step));
    EXPECT_THAT(checksums.by_tensor(), ElementsAre(Crc32("abcde"), 0u, Crc32("1234"), 0u));
    EXPECT_EQ(checksums.OfFile(header), Crc32(header + data));
  }
}

}  // namespace
}  // namespace cohort::checkpoint
