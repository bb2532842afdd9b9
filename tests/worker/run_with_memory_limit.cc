// Runs a program that sees a cgroup with a limit on its memory, as in a container.
//
//   COHORT_TEST_PROGRAM=/path COHORT_TEST_MEMORY_BYTES=268435456 run_with_memory_limit ARGUMENTS...
//
// The files of the cgroup, of version 1 and of version 2, are in a mount namespace of the program
// alone: no cgroup changes, and the kernel does not enforce the limit.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace {

constexpr char kCgroups[] = "/sys/fs/cgroup";

bool HideCgroups() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", kCgroups, "tmpfs", 0, nullptr) == 0;
}

bool WriteLimit(const char* bytes) {
  if (chdir(kCgroups) != 0 || mkdir("memory", 0755) != 0) return false;
  std::ofstream version_1("memory/memory.limit_in_bytes");
  std::ofstream version_2("memory.max");
  version_1 << bytes << std::endl;
  version_2 << bytes << std::endl;
  return version_1.good() && version_2.good() && chdir("/") == 0;
}

}  // namespace

int main(int, char** argv) {
  const char* const program = std::getenv("COHORT_TEST_PROGRAM");
  const char* const bytes = std::getenv("COHORT_TEST_MEMORY_BYTES");
  if (program == nullptr || bytes == nullptr) return 2;
  if (!HideCgroups() || !WriteLimit(bytes)) {
    std::perror("run_with_memory_limit");
    return 2;
  }
  argv[0] = const_cast<char*>(program);
  execv(program, argv);
  std::perror(program);
  return 2;
}
