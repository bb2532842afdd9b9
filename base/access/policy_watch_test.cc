#include "base/access/policy_watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/threads/notification.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

// Longer than anything here takes; only a hang reaches it.
constexpr absl::Duration kTimeout = absl::Seconds(20);

class PolicyWatchTest : public ::testing::Test {
 protected:
  // The one client is a member of this tenant alone.
  void WriteTenant(const std::string& tenant) {
    std::ofstream(path_ + ".next") << absl::StrCat(
        R"({"rules": [{"identity": "client", "tenant": ")", tenant, R"(", "role": "member"}]})");
    ASSERT_EQ(rename((path_ + ".next").c_str(), path_.c_str()), 0);
  }
  // At a time at which a caller would look at the file if there were no watch.
  std::string TenantOfACaller() {
    now_ += absl::Hours(1);
    return std::string(client_->Current(now_)->OwnTenant());
  }
  void Start() {
    policy_ = AccessPolicy::Load(path_).value();
    client_ = std::make_shared<PeerAccess>(policy_, std::vector<std::string>{"client"});
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/watched-policy.json");
  Instant now_ = absl::FromUnixSeconds(100);
  std::shared_ptr<AccessPolicy> policy_;
  std::shared_ptr<PeerAccess> client_;
};

TEST_F(PolicyWatchTest, CallersDoNotReadAChangedFile) {
  WriteTenant("first");
  Start();
  Notification read_once, may_go_on, read_twice;
  std::atomic<int> changes{0};
  std::thread::id reader;
  {
    PolicyWatch watch(policy_, [&](bool by_files) {
      EXPECT_TRUE(by_files);
      if (++changes == 2) return read_twice.Notify();
      reader = std::this_thread::get_id();
      read_once.Notify();
      EXPECT_TRUE(may_go_on.WaitWithTimeout(kTimeout));
    });
    WriteTenant("second");
    ASSERT_TRUE(read_once.WaitWithTimeout(kTimeout));
    EXPECT_NE(reader, std::this_thread::get_id());
    EXPECT_EQ(TenantOfACaller(), "second");
    // The watch's thread is held, so only a caller could read this.
    WriteTenant("third");
    EXPECT_EQ(TenantOfACaller(), "second");
    may_go_on.Notify();
    ASSERT_TRUE(read_twice.WaitWithTimeout(kTimeout));
    EXPECT_EQ(TenantOfACaller(), "third");
  }
  // Without a watch, callers read.
  WriteTenant("fourth");
  EXPECT_EQ(TenantOfACaller(), "fourth");
}

TEST_F(PolicyWatchTest, APipeOrAnEndlessFileStopsNeitherTheWatchNorCallers) {
  WriteTenant("before");
  Start();
  PolicyWatch watch(policy_, [](bool) {});
  const auto await = [](const std::function<bool()>& holds) {
    const absl::Time end = absl::Now() + kTimeout;
    while (!holds() && absl::Now() < end) std::this_thread::yield();
    return holds();
  };
  std::string tenant = "before";
  for (const std::string target : {"/a/pipe", "/dev/zero"}) {
    ASSERT_EQ(unlink(path_.c_str()), 0);
    ASSERT_EQ(target == "/dev/zero" ? symlink(target.c_str(), path_.c_str())
                                    : mkfifo(path_.c_str(), 0600),
              0);
    EXPECT_EQ(TenantOfACaller(), tenant);
    ASSERT_TRUE(await([&] { return !policy_->file_is_usable(); })) << target;
    EXPECT_EQ(TenantOfACaller(), tenant);
    tenant = "after " + target;
    WriteTenant(tenant);
    EXPECT_TRUE(await([&] { return TenantOfACaller() == tenant; })) << target;
  }
}

}  // namespace
}  // namespace cohort
