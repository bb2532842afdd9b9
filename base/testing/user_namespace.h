// User namespaces of tests.
//
//   if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
//   ::testing::FLAGS_gtest_death_test_style = "threadsafe";
//   EXPECT_EXIT(
//       {
//         const bool ready = testing::EnterUserNamespace(testing::kOverflowUser);
//         _exit(ready && !IsThisUser(testing::kOverflowUser) ? 0 : 1);
//       },
//       ::testing::ExitedWithCode(0), "");
//
// A process reads its map of users once (base/peer_user.h), and can enter a namespace only while it
// has one thread. A death test of the style "threadsafe" is such a process.
#ifndef COHORT_BASE_TESTING_USER_NAMESPACE_H_
#define COHORT_BASE_TESTING_USER_NAMESPACE_H_

#include <sched.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>

namespace cohort::testing {

// The number that the kernel gives to each user whom a namespace does not map.
inline constexpr uid_t kOverflowUser = 65534;

// Moves this process into a new namespace, in which its user has the number `user`, or no number of
// its own. The namespace has no other user. Returns false if the system refuses.
inline bool EnterUserNamespace(std::optional<uid_t> user = std::nullopt) {
  const uid_t outside = geteuid();
  if (unshare(CLONE_NEWUSER) != 0) return false;
  if (!user.has_value()) return true;
  std::ofstream map("/proc/self/uid_map");
  map << *user << " " << outside << " 1" << std::flush;
  return map.good() && geteuid() == *user;
}

// Whether a process of this user may enter one.
inline bool HasUserNamespaces() {
  const pid_t probe = fork();
  if (probe == 0) _exit(EnterUserNamespace(kOverflowUser) ? 0 : 1);
  int how = 0;
  return probe > 0 && waitpid(probe, &how, 0) == probe && how == 0;
}

}  // namespace cohort::testing

#endif  // COHORT_BASE_TESTING_USER_NAMESPACE_H_
