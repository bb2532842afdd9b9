#include "worker/daemon/limits/descriptor_quota.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

TEST(DescriptorQuotaTest, OneSessionAndAllSessionsHaveLimits) {
  const auto quota = std::make_shared<DescriptorQuota>(DescriptorLimits{5, 4});
  const auto first = std::make_shared<DescriptorShare>(quota);
  const auto second = std::make_shared<DescriptorShare>(quota);
  std::optional<HeldDescriptors> held = HeldDescriptors::Take(first, 3, "a group").value();
  const absl::Status session = HeldDescriptors::Take(first, 2, "a group").status();
  EXPECT_EQ(session.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(session.message()),
              HasSubstr("a group takes 2 file descriptors; this session holds 3 of 4 "
                        "(--max-descriptors-per-session)"));
  const absl::Status all = HeldDescriptors::Take(second, 3, "memory").status();
  EXPECT_EQ(all.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("memory takes 3 file descriptors; all sessions hold 3 of 5 "
                        "(--max-descriptors)"));
  held.reset();
  EXPECT_TRUE(HeldDescriptors::Take(second, 3, "memory").ok());
}

TEST(DescriptorQuotaTest, ResizedDescriptorsCountByTheirPresentNumber) {
  const auto quota = std::make_shared<DescriptorQuota>(DescriptorLimits{10, 8});
  const auto share = std::make_shared<DescriptorShare>(quota);
  const auto other = std::make_shared<DescriptorShare>(quota);
  {
    HeldDescriptors held = HeldDescriptors::Take(share, 3, "a group").value();
    const HeldDescriptors session = HeldDescriptors::Take(share, 2, "a session").value();
    const absl::Status refused = held.Resize(7, "a group of 5 ranks");
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("a group of 5 ranks takes 7 file descriptors; this session holds 2 of 8 "
                          "(--max-descriptors-per-session)"));
    EXPECT_TRUE(held.Resize(6, "a group").ok());
    EXPECT_THAT(std::string(HeldDescriptors::Take(other, 3, "memory").status().message()),
                HasSubstr("all sessions hold 8 of 10 (--max-descriptors)"));
    EXPECT_TRUE(held.Resize(1, "a group").ok());
    EXPECT_TRUE(HeldDescriptors::Take(other, 7, "memory").ok());
  }
  EXPECT_TRUE(HeldDescriptors::Take(share, 8, "a group").ok());
}

TEST(DescriptorQuotaTest, AnIdentityWithManySessionsLeavesOthersAQuarter) {
  const auto quota = std::make_shared<DescriptorQuota>(DescriptorLimits{8, 4});
  const auto share = [&quota](const char* identity) {
    return std::make_shared<DescriptorShare>(quota, "this session holds", identity);
  };
  HeldDescriptors first = HeldDescriptors::Take(share("spiffe://a"), 4, "a group").value();
  HeldDescriptors second = HeldDescriptors::Take(share("spiffe://a"), 2, "a group").value();
  EXPECT_EQ(HeldDescriptors::Take(share("spiffe://a"), 1, "memory").status().message(),
            "memory takes 1 file descriptors; spiffe://a holds 6 of 6, as many as one identity may "
            "have of --max-descriptors");
  EXPECT_FALSE(second.Resize(3, "a group").ok());
  EXPECT_TRUE(HeldDescriptors::Take(share("spiffe://b"), 2, "memory").ok());
  EXPECT_TRUE(first.Resize(3, "a group").ok());
  EXPECT_TRUE(second.Resize(3, "a group").ok());
}

TEST(DescriptorQuotaTest, MovedDescriptorsAreGivenBackOnce) {
  const auto quota = std::make_shared<DescriptorQuota>(DescriptorLimits{2, 2});
  const auto share = std::make_shared<DescriptorShare>(quota);
  {
    HeldDescriptors held = HeldDescriptors::Take(share, 2, "a group").value();
    const HeldDescriptors moved = std::move(held);
    EXPECT_FALSE(HeldDescriptors::Take(share, 1, "a group").ok());
  }
  EXPECT_TRUE(HeldDescriptors::Take(share, 2, "a group").ok());
  EXPECT_FALSE(HeldDescriptors::Take(share, 3, "a group").ok());
}

}  // namespace
}  // namespace cohort::worker
