#include "base/rpc/listener/guarded_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

// The name of the peer as gRPC writes it; empty: it is no path of a Unix socket.
std::string PeerName(int fd) {
  sockaddr_un name = {};
  socklen_t size = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return "";
  return name.sun_family != AF_UNIX || name.sun_path[0] == '\0'
             ? ""
             : absl::StrCat("unix:", name.sun_path);
}

class GuardedSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    near_ = UniqueFd(pair[0]);
    far_ = UniqueFd(pair[1]);
    const std::string path = absl::StrCat(::testing::TempDir(), "/policy.json");
    std::ofstream(path) << R"({"rules": []})";
    access_ = std::make_shared<PeerAccess>(AccessPolicy::Load(path).value(),
                                           NamesOfPeer(near_.get(), nullptr));
  }
  void Guard(std::shared_ptr<PeerAccess> access) {
    auto socket = std::make_shared<GuardedSocket>();
    socket->access = std::move(access);
    GuardSocket(near_.get(), Http2Limits(), std::move(socket));
  }

  UniqueFd near_, far_;
  std::shared_ptr<PeerAccess> access_;
};

TEST_F(GuardedSocketTest, ThePeerOfACallLeadsToItsRights) {
  Guard(access_);
  const std::string peer = PeerName(near_.get());
  EXPECT_EQ(AccessOfGrpcPeer(peer), access_);
  for (const std::string& other :
       {std::string("unix:"), std::string("unix:/"), std::string("ipv4:127.0.0.1:80"), peer + "0",
        peer + "/1", absl::StrCat("unix:/", near_.get(), "/0"), std::string("unix:/-1/0")}) {
    EXPECT_EQ(AccessOfGrpcPeer(other), nullptr) << other;
  }
  ForgetSocket(near_.get(), SocketCookie(near_.get()));
  EXPECT_EQ(AccessOfGrpcPeer(peer), nullptr);
}

TEST_F(GuardedSocketTest, ASocketWithoutRightsHasItsOwnName) {
  Guard(nullptr);
  EXPECT_EQ(PeerName(near_.get()), "");
}

TEST_F(GuardedSocketTest, TheNextSocketWithTheNumberHasItsOwnName) {
  Guard(access_);
  const std::string before = PeerName(near_.get());
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const UniqueFd next(pair[0]), other(pair[1]);
  ASSERT_EQ(dup2(next.get(), near_.get()), near_.get());
  EXPECT_NE(before, "");
  EXPECT_EQ(PeerName(near_.get()), "");
}

}  // namespace
}  // namespace cohort
