#include "base/framed_rpc/client/framed_rpc_channel.h"

#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/framed_rpc/client/testing/fake_framed_rpc_server.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

TEST(ChannelTest, MakesANewConnectionWhenOneBreaks) {
  FakeServer host;
  auto channel =
      std::make_shared<Channel>(absl::StrCat("127.0.0.1:", host.port()), ChannelOptions(),
                                /*enabled=*/true);
  std::shared_ptr<ClientConnection> last;
  const auto route = [&] {
    const absl::Time end = absl::Now() + kLong;
    while (absl::Now() < end) {
      Route found = channel->RouteOf("a/Two");
      if (found.connection != nullptr && found.connection != last) return found;
      std::this_thread::yield();
    }
    return Route();
  };
  EXPECT_EQ(channel->RouteOf("a/Two").connection, nullptr) << "the first call goes by gRPC";
  for (int life = 0; life < 2; ++life) {
    std::unique_ptr<FakeServerConnection> peer;
    std::thread server([&] {
      peer = host.Accept();
      peer->Greet();
    });
    const Route found = route();
    server.join();
    ASSERT_NE(found.connection, nullptr);
    last = found.connection;
    EXPECT_EQ(found.method, 1);
    EXPECT_EQ(channel->RouteOf("a/Three").connection, nullptr);
  }
}

TEST(ChannelTest, AServerOfAnotherKindIsNotTriedAgain) {
  FakeServer host;
  auto channel =
      std::make_shared<Channel>(absl::StrCat("127.0.0.1:", host.port()), ChannelOptions(),
                                /*enabled=*/true);
  channel->RouteOf("a/Two");
  channel->RouteOf("a/Two");
  const std::unique_ptr<FakeServerConnection> peer = host.Accept();
  peer->Send(std::string("\0\0\x12\4\0\0\0\0\0\0\3", 11));  // HTTP/2 begins so
  EXPECT_FALSE(peer->Next().has_value());
  // A connection that broke is renewed after 100 ms.
  const absl::Time end = absl::Now() + absl::Milliseconds(400);
  while (absl::Now() < end) {
    EXPECT_EQ(channel->RouteOf("a/Two").connection, nullptr);
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_FALSE(host.HasConnection());
}

TEST(ChannelTest, HasNoConnectionWhenSwitchedOff) {
  FakeServer host;
  const auto channel =
      std::make_shared<Channel>(absl::StrCat("127.0.0.1:", host.port()), ChannelOptions(),
                                /*enabled=*/false);
  EXPECT_EQ(channel->RouteOf("a/Two").connection, nullptr);
  EXPECT_EQ(channel->RouteOf("a/Two").connection, nullptr);
}

}  // namespace
}  // namespace cohort::framed_rpc
