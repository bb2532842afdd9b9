#include "base/port/limits/incomplete_request_bytes.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(IncompleteRequestBytesTest, TheSumOfAllConnectionsHasALimit) {
  auto all = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", 100);
  IncomingCharge one(all);
  IncomingCharge other(all);
  EXPECT_TRUE(one.Set(60));
  EXPECT_TRUE(all->Check().ok());
  EXPECT_TRUE(other.Set(41));
  const absl::Status status = all->Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_incoming_bytes (100)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("101 bytes"));
  EXPECT_FALSE(one.Set(59));
  EXPECT_TRUE(all->Check().ok());
}

TEST(IncompleteRequestBytesTest, AConnectionGivesItsBytesBackAtItsEnd) {
  auto all = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", 100);
  {
    IncomingCharge one(all);
    one.Set(50);
    IncomingCharge moved = std::move(one);
    EXPECT_EQ(all->held(), 50);
    moved = IncomingCharge(all);
    EXPECT_EQ(all->held(), 0);
    moved.Set(10);
  }
  EXPECT_EQ(all->held(), 0);
}

TEST(IncompleteRequestBytesTest, AChargeMovesToAnotherLimit) {
  auto all = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", 100);
  auto part = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes_per_peer", 75, all);
  IncomingCharge charge(part);
  charge.Set(80);
  EXPECT_FALSE(part->Check().ok());
  charge.MoveTo(all);
  EXPECT_EQ(part->held(), 0);
  EXPECT_EQ(all->held(), 80);
  EXPECT_TRUE(charge.all()->Check().ok());
  charge.Set(0);
  EXPECT_EQ(all->held(), 0);
}

TEST(IncompleteRequestBytesTest, AnAddressHasALimitOfItsOwn) {
  auto all = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", 100);
  auto peer = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes_per_peer", 75, all);
  auto other = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes_per_peer", 75, all);
  IncomingCharge charge(peer);
  IncomingCharge others(other);
  charge.Set(76);
  EXPECT_THAT(std::string(peer->Check().message()), HasSubstr("max_incoming_bytes_per_peer (75)"));
  EXPECT_TRUE(other->Check().ok());
  charge.Set(75);
  others.Set(26);
  EXPECT_THAT(std::string(other->Check().message()), HasSubstr("max_incoming_bytes (100)"));
}

}  // namespace
}  // namespace cohort
