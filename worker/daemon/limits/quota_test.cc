#include "worker/daemon/limits/quota.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

TEST(QuotaTest, OneSessionAndAllSessionsHaveLimits) {
  const auto quota = std::make_shared<Quota>(kDescriptors, QuotaLimits{5, 4});
  const auto first = std::make_shared<QuotaShare>(quota);
  const auto second = std::make_shared<QuotaShare>(quota);
  std::optional<HeldQuota> held = HeldQuota::Take(first, 3, "a group").value();
  const absl::Status session = HeldQuota::Take(first, 2, "a group").status();
  EXPECT_EQ(session.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(session.message()),
              HasSubstr("a group takes 2 file descriptors; this session holds 3 of 4 "
                        "(--max-descriptors-per-session)"));
  const absl::Status all = HeldQuota::Take(second, 3, "memory").status();
  EXPECT_EQ(all.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("memory takes 3 file descriptors; all sessions hold 3 of 5 "
                        "(--max-descriptors)"));
  held.reset();
  EXPECT_TRUE(HeldQuota::Take(second, 3, "memory").ok());
}

TEST(QuotaTest, ResizedDescriptorsCountByTheirPresentNumber) {
  const auto quota = std::make_shared<Quota>(kDescriptors, QuotaLimits{10, 8});
  const auto share = std::make_shared<QuotaShare>(quota);
  const auto other = std::make_shared<QuotaShare>(quota);
  {
    HeldQuota held = HeldQuota::Take(share, 3, "a group").value();
    const HeldQuota session = HeldQuota::Take(share, 2, "a session").value();
    const absl::Status refused = held.Resize(7, "a group of 5 ranks");
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("a group of 5 ranks takes 7 file descriptors; this session holds 2 of 8 "
                          "(--max-descriptors-per-session)"));
    EXPECT_TRUE(held.Resize(6, "a group").ok());
    EXPECT_THAT(std::string(HeldQuota::Take(other, 3, "memory").status().message()),
                HasSubstr("all sessions hold 8 of 10 (--max-descriptors)"));
    EXPECT_TRUE(held.Resize(1, "a group").ok());
    EXPECT_TRUE(HeldQuota::Take(other, 7, "memory").ok());
  }
  EXPECT_TRUE(HeldQuota::Take(share, 8, "a group").ok());
}

TEST(QuotaTest, AnIdentityWithManySessionsLeavesOthersAQuarter) {
  const auto quota = std::make_shared<Quota>(kDescriptors, QuotaLimits{8, 4});
  const auto share = [&quota](const char* identity) {
    return std::make_shared<QuotaShare>(quota, "this session holds", Payer{identity, ""});
  };
  HeldQuota first = HeldQuota::Take(share("spiffe://a"), 4, "a group").value();
  HeldQuota second = HeldQuota::Take(share("spiffe://a"), 2, "a group").value();
  EXPECT_EQ(HeldQuota::Take(share("spiffe://a"), 1, "memory").status().message(),
            "memory takes 1 file descriptors; spiffe://a holds 6 of 6, as many as one identity may "
            "have of --max-descriptors");
  EXPECT_FALSE(second.Resize(3, "a group").ok());
  EXPECT_TRUE(HeldQuota::Take(share("spiffe://b"), 2, "memory").ok());
  EXPECT_TRUE(first.Resize(3, "a group").ok());
  EXPECT_TRUE(second.Resize(3, "a group").ok());
}

TEST(QuotaTest, ATenantWithManyIdentitiesLeavesOthersAnEighth) {
  const auto quota = std::make_shared<Quota>(kTensorBytes, QuotaLimits{8, 0});
  const auto share = [&quota](const char* identity, const char* tenant) {
    return std::make_shared<QuotaShare>(quota, "this session holds", Payer{identity, tenant});
  };
  HeldQuota first = HeldQuota::Take(share("spiffe://a1", "a"), 6, "a tensor").value();
  HeldQuota second = HeldQuota::Take(share("spiffe://a2", "a"), 1, "a tensor").value();
  EXPECT_EQ(HeldQuota::Take(share("spiffe://a3", "a"), 1, "a tensor").status().message(),
            "a tensor takes 1 bytes; tenant a holds 7 of 7, as many as one tenant may have of "
            "--max-tensor-bytes");
  EXPECT_FALSE(second.Resize(2, "a tensor").ok());
  EXPECT_TRUE(HeldQuota::Take(share("spiffe://b", "b"), 1, "a tensor").ok());
  EXPECT_TRUE(first.Resize(5, "a tensor").ok());
  EXPECT_TRUE(second.Resize(2, "a tensor").ok());
}

TEST(QuotaTest, MovedDescriptorsAreGivenBackOnce) {
  const auto quota = std::make_shared<Quota>(kDescriptors, QuotaLimits{2, 2});
  const auto share = std::make_shared<QuotaShare>(quota);
  {
    HeldQuota held = HeldQuota::Take(share, 2, "a group").value();
    const HeldQuota moved = std::move(held);
    EXPECT_FALSE(HeldQuota::Take(share, 1, "a group").ok());
  }
  EXPECT_TRUE(HeldQuota::Take(share, 2, "a group").ok());
  EXPECT_FALSE(HeldQuota::Take(share, 3, "a group").ok());
}

TEST(QuotaTest, AWaivedOneCountsNothing) {
  const auto quota = std::make_shared<Quota>(kTensorBytes, QuotaLimits{10, 0});
  HeldQuota waived = HeldQuota::Take(std::make_shared<QuotaShare>(quota), 10, "memory").value();
  HeldQuota other(std::make_shared<QuotaShare>(quota));
  EXPECT_EQ(other.Add(1, "memory").message(),
            "memory takes 1 bytes; all sessions hold 10 of 10 (--max-tensor-bytes)");
  waived.Waive();
  EXPECT_TRUE(waived.Add(11, "memory").ok());
  EXPECT_TRUE(other.Add(8, "memory").ok());
  EXPECT_FALSE(other.Resize(INT64_MAX, "memory").ok());
  EXPECT_EQ(other.Add(3, "memory").message(),
            "memory takes 3 bytes; all sessions hold 8 of 10 (--max-tensor-bytes)");
  EXPECT_TRUE(other.Add(-6, "memory").ok());
  EXPECT_TRUE(other.Add(3, "memory").ok());
}

TEST(QuotaTest, AWaivedOneIsGivenBackToItsIdentity) {
  const auto quota = std::make_shared<Quota>(kTensorBytes, QuotaLimits{8, 0});
  const auto share = [&quota] {
    return std::make_shared<QuotaShare>(quota, "this session holds", Payer{"spiffe://a", "a"});
  };
  HeldQuota waived = HeldQuota::Take(share(), 6, "memory").value();
  EXPECT_FALSE(HeldQuota::Take(share(), 1, "memory").ok());
  waived.Waive();
  const absl::Status next = HeldQuota::Take(share(), 6, "memory").status();
  EXPECT_TRUE(next.ok()) << next;
}

}  // namespace
}  // namespace cohort::worker
