#include "base/peer_user.h"

#include <unistd.h>

#include "base/testing/user_namespace.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr char kWholeMap[] = "         0          0 4294967295\n";
constexpr char kRootless[] = "         0       1000          1\n         1     100000      65536\n";
constexpr char kOverflow[] = "65534\n";

TEST(PeerUserTest, TheOverflowUserStandsForAllThatAreNotMapped) {
  EXPECT_TRUE(IsOneUser(65534, kWholeMap, kOverflow));
  EXPECT_FALSE(IsOneUser(65534, kRootless, kOverflow));
  EXPECT_TRUE(IsOneUser(0, kRootless, kOverflow));
  EXPECT_TRUE(IsOneUser(1000, kRootless, kOverflow));
  EXPECT_FALSE(IsOneUser(99, kRootless, "99\n"));
  EXPECT_TRUE(IsOneUser(65534, kRootless, "99\n"));
}

TEST(PeerUserTest, AnUnreadableMapMapsNoUser) {
  EXPECT_FALSE(IsOneUser(65534, "", ""));
  EXPECT_TRUE(IsOneUser(0, "", ""));
}

TEST(PeerUserTest, OneUserHasOneNumberOutsideOfItsNamespaces) {
  EXPECT_EQ(UserOutside(65532, "0 0 4294967295"), 65532u);
  EXPECT_EQ(UserOutside(0, "0 1000 1\n1 100000 65536\n"), 1000u);
  EXPECT_EQ(UserOutside(33, "0 1000 1\n1 100000 65536\n"), 100032u);
  EXPECT_EQ(UserOutside(1, "0 1000 1\n2 100000 65536\n"), 1u);
  EXPECT_EQ(UserOutside(2, "0 1000 1\n2 100000 65536\n"), 100000u);
  EXPECT_EQ(UserOutside(65536, "0 1000 1\n1 100000 65536\n"), 165535u);
  EXPECT_EQ(UserOutside(65537, "0 1000 1\n1 100000 65536\n"), 65537u);
  EXPECT_EQ(UserOutside(5, ""), 5u);
}

// Another process with this number may be any user of the host.
TEST(PeerUserTest, TheOverflowUserOfANamespaceIsNotThisUser) {
  EXPECT_TRUE(IsThisUser(geteuid()));
  if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const bool ready = testing::EnterUserNamespace(testing::kOverflowUser);
        _exit(ready && !IsThisUser(testing::kOverflowUser) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cohort
