#include "base/port/socket/listen_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/port/socket/listen_address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

class ListenSocketTest : public ::testing::Test {
 protected:
  // A umask that would let each user connect to a socket.
  ListenSocketTest() : before_(umask(0)) {
    char name[] = "/tmp/listen_socket_XXXXXX";  // a socket's path is short
    folder_ = mkdtemp(name);
    path_ = absl::StrCat(folder_, "/socket");
  }
  ~ListenSocketTest() override {
    umask(before_);
    rmdir(folder_.c_str());
  }

  // The mode of the socket's file while a server listens.
  mode_t ModeOf(absl::StatusOr<std::vector<ListenSocket>> sockets) {
    EXPECT_TRUE(sockets.ok()) << sockets.status();
    struct stat file = {};
    EXPECT_EQ(stat(path_.c_str(), &file), 0);
    return file.st_mode & 07777;
  }
  ListenAddress address() { return *ParseListenAddress(absl::StrCat("unix:", path_)); }

  const mode_t before_;
  std::string folder_;
  std::string path_;
};

TEST_F(ListenSocketTest, AUnixSocketIsPrivate) {
  EXPECT_EQ(ModeOf(ListenSocket::Open(address())), 0600);
}

TEST_F(ListenSocketTest, AUnixSocketHasTheModeAskedFor) {
  umask(0077);  // would take the rights of the group away
  EXPECT_EQ(ModeOf(ListenSocket::Open(address(), 0660)), 0660);
}

absl::StatusOr<ListenAddress> Inherited(int fd) {
  return ParseListenAddress(absl::StrCat("fd://", fd));
}

TEST_F(ListenSocketTest, AnInheritedSocketKeepsItsPortAndTheConnectionsThatWait) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  const absl::Status early = Inherited(fd).status();
  EXPECT_EQ(early.message(),
            absl::StrCat("listen address \"fd://", fd,
                         "\": the socket does not listen: call listen() on it first"));
  ASSERT_EQ(listen(fd, 5), 0);
  socklen_t size = sizeof(name);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  const absl::StatusOr<ListenAddress> address = Inherited(fd);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_TRUE(address->is_loopback());
  EXPECT_EQ(address->WithPort(address->port), absl::StrCat("127.0.0.1:", ntohs(name.sin_port)));
  {
    const absl::StatusOr<std::vector<ListenSocket>> sockets = ListenSocket::Open(*address);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    ASSERT_EQ(sockets->size(), 1u);
    EXPECT_EQ(sockets->front().fd(), fd);
    EXPECT_EQ(sockets->front().port(), ntohs(name.sin_port));
    EXPECT_TRUE(ConnectionWaits(fd));
  }
  close(client);
  EXPECT_FALSE(Inherited(fd).ok()) << "the object closes the descriptor";
}

TEST_F(ListenSocketTest, OnlyATcpSocketIsInherited) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_THAT(std::string(Inherited(pair[0]).status().message()), HasSubstr("no TCP socket"));
  close(pair[0]);
  close(pair[1]);
}

}  // namespace
}  // namespace cohort
