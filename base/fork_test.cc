#include "base/fork.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr int kSoonMs = 20'000;

struct Pair {
  UniqueFd near, far;

  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    near = UniqueFd(ends[0]);
    far = UniqueFd(ends[1]);
  }
};

// A child that lives until this object ends, and has all descriptors of this process.
class Child {
 public:
  Child() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[1]);
      char byte;
      [[maybe_unused]] const ssize_t end = read(ends[0], &byte, 1);
      _exit(0);
    }
    close(ends[0]);
    lives_ = UniqueFd(ends[1]);
  }
  ~Child() {
    lives_ = UniqueFd();
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  UniqueFd lives_;
};

bool HasEnded(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  char byte;
  return poll(&entry, 1, kSoonMs) == 1 && read(fd, &byte, 1) == 0;
}

// Runs `test` in a child, and returns its result.
template <typename Test>
int InChild(const Test& test) {
  const pid_t child = fork();
  if (child == 0) _exit(test());
  int how = -1;
  waitpid(child, &how, 0);
  return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

TEST(ForkTest, ThePeerSeesTheEndThoughAChildLives) {
  Pair pair;
  CloseInChildren(pair.near.get());
  const Child child;
  pair.near = UniqueFd();
  EXPECT_TRUE(HasEnded(pair.far.get()));
}

TEST(ForkTest, TheParentKeepsIt) {
  const Pair pair;
  CloseInChildren(pair.near.get());
  const Child child;
  char byte = 'x';
  EXPECT_EQ(write(pair.near.get(), &byte, 1), 1);
  EXPECT_EQ(read(pair.far.get(), &byte, 1), 1);
}

TEST(ForkTest, TheNumberStaysTakenInTheChild) {
  const Pair pair;
  CloseInChildren(pair.near.get());
  EXPECT_EQ(InChild([&] {
              char byte = 'x';
              if (fcntl(pair.near.get(), F_GETFD) != FD_CLOEXEC) return 1;
              return read(pair.near.get(), &byte, 1) == 0 ? 0 : 2;  // as /dev/null
            }),
            0);
}

TEST(ForkTest, AnotherFileWithTheNumberIsKept) {
  Pair pair;
  const int number = pair.near.get();
  CloseInChildren(number);
  pair.near = UniqueFd();
  const Pair other;
  ASSERT_GE(fcntl(other.near.get(), F_DUPFD, number), 0);
  EXPECT_EQ(InChild([&] {
              char byte = 'x';
              return write(number, &byte, 1) == 1 && read(other.far.get(), &byte, 1) == 1 ? 0 : 1;
            }),
            0);
  close(number);
}

TEST(ForkTest, OtherSocketsAndFilesAreKept) {
  const Pair named, other;
  CloseInChildren(named.near.get());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reads(ends[0]), writes(ends[1]);
  CloseInChildren(writes.get());  // no socket
  CloseInChildren(-1);
  EXPECT_EQ(InChild([&] {
              char byte = 'x';
              if (write(other.near.get(), &byte, 1) != 1) return 1;
              return write(writes.get(), &byte, 1) == 1 ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace cohort
