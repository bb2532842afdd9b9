#include "coordinator/core/interface/tenant_accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace cohort::coordinator {
namespace {

TEST(TenantAccounts, ATenantsChargesCountInTheWhole) {
  const auto whole = std::make_shared<MemoryAccount>();
  TenantAccounts tenants(whole);
  const int64_t before = whole->held();
  const std::shared_ptr<MemoryAccount> a = tenants.Of("a"), b = tenants.Of("b");
  EXPECT_EQ(tenants.Of("a"), a);
  const int64_t of_accounts = whole->held() - before;
  EXPECT_GT(of_accounts, 2 * static_cast<int64_t>(sizeof(MemoryAccount)));
  a->AddValue(MemoryKind::kKeys, 100, 10);
  b->Add(MemoryKind::kKeys, 7);
  a->Count(QuotaKind::kGroups, 2);
  EXPECT_EQ(a->held(), 110);
  EXPECT_EQ(a->value_bytes(), 100);
  EXPECT_EQ(b->held(), 7);
  EXPECT_EQ(whole->held() - of_accounts, 117);
  EXPECT_EQ(whole->value_bytes(), 100);
  EXPECT_EQ(whole->count(QuotaKind::kGroups), 2);
  const auto all = tenants.All();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]->tenant(), "a");
  EXPECT_EQ(all[1]->tenant(), "b");
}

TEST(TenantAccounts, AnAccountGoesWithItsLastHolder) {
  const auto whole = std::make_shared<MemoryAccount>();
  std::shared_ptr<MemoryAccount> last;
  {
    TenantAccounts tenants(whole);
    tenants.Of("a");
    EXPECT_TRUE(tenants.All().empty());
    EXPECT_EQ(whole->held(), 0);
    last = tenants.Of("b");
  }
  EXPECT_GT(whole->held(), 0);
  last.reset();
  EXPECT_EQ(whole->held(), 0);
}

TEST(TenantAccounts, ThreadsMayTakeAndDropTheSameAccount) {
  const auto whole = std::make_shared<MemoryAccount>();
  TenantAccounts tenants(whole);
  constexpr int kThreads = 4, kTurns = 2000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::shared_ptr<MemoryAccount> account = tenants.Of("a");
        account->Count(QuotaKind::kStreams, 1);
        for (const auto& one : tenants.All()) EXPECT_EQ(one->tenant(), "a");
        account->Count(QuotaKind::kStreams, -1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole->held(), 0);
  EXPECT_TRUE(tenants.All().empty());
}

}  // namespace
}  // namespace cohort::coordinator
