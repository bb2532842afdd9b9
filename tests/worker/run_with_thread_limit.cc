// Runs a program with a limit on its threads, as in a pod with a limit on processes.
//
//   COHORT_TEST_PROGRAM=/path COHORT_TEST_THREADS=60 run_with_thread_limit ARGUMENTS...
//
// RLIMIT_NPROC does not apply to root. So the program keeps root's files and sockets as its
// effective user, counts as another real user, and has no capability that lifts the limit. The real
// user's number depends on the process, so that two tests at a time do not count together.
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int, char** argv) {
  const uid_t real_user = 1'000'000 + static_cast<uid_t>(getpid());
  const char* const program = std::getenv("COHORT_TEST_PROGRAM");
  const char* const threads = std::getenv("COHORT_TEST_THREADS");
  if (program == nullptr || threads == nullptr) return 2;
  rlimit limit = {};
  limit.rlim_cur = limit.rlim_max = std::strtoul(threads, nullptr, 10);
  if (prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE) != 0 || prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) != 0 ||
      setrlimit(RLIMIT_NPROC, &limit) != 0 || setresuid(real_user, 0, 0) != 0) {
    std::perror("run_with_thread_limit");
    return 2;
  }
  argv[0] = const_cast<char*>(program);
  execv(program, argv);
  std::perror(program);
  return 2;
}
