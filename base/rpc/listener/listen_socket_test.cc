#include "base/rpc/listener/listen_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/listener/listen_address.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

class ListenSocketTest : public testing::Test {
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

}  // namespace
}  // namespace cohort
