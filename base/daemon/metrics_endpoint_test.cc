#include "base/daemon/metrics_endpoint.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/registry.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

UniqueFd ConnectTo(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

std::string Scrape(int port) {
  const UniqueFd fd = ConnectTo(port);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string text;
  char part[4096];
  for (ssize_t size = 0; (size = recv(fd.get(), part, sizeof(part), 0)) > 0;) {
    text.append(part, static_cast<size_t>(size));
  }
  return text;
}

TEST(MetricsEndpointTest, ServesAndStopsAtOnce) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    SCOPED_TRACE(address);
    auto endpoint = MetricsEndpoint::Start(address, {registry});
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("some_total 1"));
    const Instant asked = Clock::Steady().Now();
    endpoint->reset();
    // The library by itself takes up to two seconds.
    EXPECT_LT(Clock::Steady().Now() - asked, absl::Seconds(1));
  }
}

TEST(MetricsEndpointTest, NamesAnAddressThatIsTaken) {
  auto first = MetricsEndpoint::Start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string taken = absl::StrCat("127.0.0.1:", (*first)->port());
  const absl::Status second = MetricsEndpoint::Start(taken, {}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()), HasSubstr(taken));
  EXPECT_EQ(MetricsEndpoint::Start("unix:/tmp/none", {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort
