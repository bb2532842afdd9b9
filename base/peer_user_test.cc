#include "base/peer_user.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

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

// Another process with this number may be any user of the host.
TEST(PeerUserTest, TheOverflowUserOfANamespaceIsNotThisUser) {
  EXPECT_TRUE(IsThisUser(geteuid()));
  const uid_t user = geteuid();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0) _exit(2);
    std::ofstream("/proc/self/uid_map") << "65534 " << user << " 1";
    if (geteuid() != 65534) _exit(2);
    _exit(IsThisUser(65534) ? 1 : 0);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  if (WEXITSTATUS(how) == 2) GTEST_SKIP() << "needs user namespaces";
  EXPECT_EQ(how, 0);
}

}  // namespace
}  // namespace cohort
