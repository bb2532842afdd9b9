#include "base/framed_rpc/client/framed_rpc_channel.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
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

// A channel whose connection breaks later, to a server of this kind, shows that the pause is over.
TEST(ChannelTest, AServerOfAnotherKindIsNotTriedAgain) {
  FakeServer other;
  FakeServer host;
  const auto channel_to = [](FakeServer& server) {
    auto channel = std::make_shared<Channel>(absl::StrCat("127.0.0.1:", server.port()),
                                             ChannelOptions(), /*enabled=*/true);
    channel->RouteOf("a/Two");
    channel->RouteOf("a/Two");
    return channel;
  };
  const auto to_other = channel_to(other);
  const std::unique_ptr<FakeServerConnection> peer = other.Accept();
  peer->Send(std::string("\0\0\x12\4\0\0\0\0\0\0\3", 11));  // HTTP/2 begins so
  EXPECT_FALSE(peer->Next().has_value());
  const auto to_host = channel_to(host);
  host.Accept()->Greet();  // then closes it
  const absl::Time end = absl::Now() + kLong;
  while (!host.HasConnection() && absl::Now() < end) {
    EXPECT_EQ(to_other->RouteOf("a/Two").connection, nullptr);
    to_host->RouteOf("a/Two");
    std::this_thread::yield();
  }
  EXPECT_TRUE(host.HasConnection());
  EXPECT_FALSE(other.HasConnection());
}

// Stands still until the test moves it.
class StandingClock final : public Clock {
 public:
  Instant Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_.fetch_add(absl::ToInt64Nanoseconds(by)); }

 private:
  std::atomic<int64_t> nanos_{int64_t{1000000000000}};
};

TEST(ChannelTest, PausesGrowDuringOneOutageAlone) {
  StandingClock clock;
  FakeServer host;
  const auto channel = std::make_shared<Channel>(absl::StrCat("127.0.0.1:", host.port()),
                                                 ChannelOptions(), /*enabled=*/true, clock);
  channel->ExpectCalls();
  // False: the channel pauses.
  const auto attempt = [&](bool succeeds) {
    const auto settled = std::make_shared<absl::Notification>();
    if (!channel->WhenSettled([settled] { settled->Notify(); })) return false;
    std::unique_ptr<FakeServerConnection> peer = host.Accept();
    if (succeeds) peer->Greet();
    if (!succeeds) peer.reset();
    EXPECT_TRUE(settled->WaitForNotificationWithTimeout(kLong));
    EXPECT_EQ(channel->ready(), succeeds);
    return true;
  };
  for (const int pause : {100, 200, 400}) {
    EXPECT_TRUE(attempt(false)) << pause;
    clock.Advance(absl::Milliseconds(pause - 1));
    EXPECT_FALSE(attempt(false)) << pause;
    clock.Advance(absl::Milliseconds(1));
  }
  EXPECT_TRUE(attempt(true));
  const absl::Time end = absl::Now() + kLong;
  while (channel->ready() && absl::Now() < end) std::this_thread::yield();
  EXPECT_TRUE(attempt(false)) << "a connection that breaks is renewed at once";
  EXPECT_FALSE(attempt(false));
  clock.Advance(absl::Milliseconds(100));
  EXPECT_TRUE(attempt(false));
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
