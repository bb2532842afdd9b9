#include "base/port/client_hello.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

// The headers of a record of `record_bytes` and of a handshake message.
std::string Headers(uint32_t record_bytes, char type, uint32_t announced) {
  std::string bytes("\x16\x03\x01", 3);
  for (const int shift : {8, 0}) bytes.push_back(static_cast<char>(record_bytes >> shift));
  bytes.push_back(type);
  for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(announced >> shift));
  return bytes;
}

TEST(ClientHelloTest, TheAnnouncedSizeHasALimit) {
  EXPECT_TRUE(CheckClientHello(Headers(512, 1, 508)).ok());
  EXPECT_TRUE(CheckClientHello(Headers(512, 1, kMaxClientHelloBytes)).ok());
  const absl::Status large = CheckClientHello(Headers(512, 1, kMaxClientHelloBytes + 1));
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.message()), HasSubstr("16385 bytes, and the limit is 16384"));
  EXPECT_FALSE(CheckClientHello(Headers(512, 1, 0xffffff)).ok());
}

TEST(ClientHelloTest, OtherMessagesAreRefused) {
  constexpr auto kRefused = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(CheckClientHello(Headers(512, 2, 508)).code(), kRefused);
  EXPECT_EQ(CheckClientHello(Headers(3, 1, 508)).code(), kRefused);
  std::string alert = Headers(512, 1, 508);
  alert[0] = 0x15;
  EXPECT_EQ(CheckClientHello(alert).code(), kRefused);
  std::string version = Headers(512, 1, 508);
  version[1] = 2;
  EXPECT_EQ(CheckClientHello(version).code(), kRefused);
}

}  // namespace
}  // namespace cohort
