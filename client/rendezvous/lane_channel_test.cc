#include "client/rendezvous/lane_channel.h"

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/rendezvous/testing/lane_peer.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

TEST(LaneChannelTest, MakesANewLinkWhenOneBreaks) {
  LaneHost host;
  auto channel =
      std::make_shared<LaneChannel>(absl::StrCat("127.0.0.1:", host.port()), LaneLinkOptions(),
                                    /*enabled=*/true);
  std::shared_ptr<LaneLink> last;
  const auto route = [&] {
    const absl::Time end = absl::Now() + kLong;
    while (absl::Now() < end) {
      LaneRoute found = channel->RouteOf("a/Two");
      if (found.link != nullptr && found.link != last) return found;
      std::this_thread::yield();
    }
    return LaneRoute();
  };
  EXPECT_EQ(channel->RouteOf("a/Two").link, nullptr) << "the first call goes by gRPC";
  for (int life = 0; life < 2; ++life) {
    std::unique_ptr<LanePeer> peer;
    std::thread server([&] {
      peer = host.Accept();
      peer->Greet();
    });
    const LaneRoute found = route();
    server.join();
    ASSERT_NE(found.link, nullptr);
    last = found.link;
    EXPECT_EQ(found.method, 1);
    EXPECT_EQ(channel->RouteOf("a/Three").link, nullptr);
  }
}

TEST(LaneChannelTest, HasNoLinkWhenSwitchedOff) {
  LaneHost host;
  const auto channel =
      std::make_shared<LaneChannel>(absl::StrCat("127.0.0.1:", host.port()), LaneLinkOptions(),
                                    /*enabled=*/false);
  EXPECT_EQ(channel->RouteOf("a/Two").link, nullptr);
  EXPECT_EQ(channel->RouteOf("a/Two").link, nullptr);
}

}  // namespace
}  // namespace cohort::client
