#include "base/port/socket/connection_closer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <vector>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

class ConnectionCloserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    near_ = UniqueFd(ends[0]);
    far_ = UniqueFd(ends[1]);
    ASSERT_TRUE(closer_.status().ok()) << closer_.status();
  }
  // Whether the connection has ended.
  bool Ended() const {
    char byte = 0;
    return recv(far_.get(), &byte, 1, 0) == 0;
  }

  ConnectionCloser closer_;
  UniqueFd near_;
  UniqueFd far_;
};

TEST_F(ConnectionCloserTest, WorksWithoutAFreeDescriptor) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<UniqueFd> all;
  do {
    all.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (all.back().get() >= 0);
  EXPECT_FALSE(Ended());
  closer_.Close(near_.get(), SocketCookie(near_.get()));
  EXPECT_TRUE(Ended());
}

TEST_F(ConnectionCloserTest, ANumberThatIsAnotherSocketsByNowStaysOpen) {
  closer_.Close(near_.get(), SocketCookie(near_.get()) + 1000);
  closer_.Close(-1, 1);
  EXPECT_FALSE(Ended());
}

TEST_F(ConnectionCloserTest, KeepsNoSocketOpen) {
  closer_.Close(near_.get(), SocketCookie(near_.get()) + 1000);
  near_ = UniqueFd();
  EXPECT_TRUE(Ended());
}

}  // namespace
}  // namespace cohort
