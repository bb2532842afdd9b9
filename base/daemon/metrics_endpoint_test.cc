#include "base/daemon/metrics_endpoint.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

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

std::string Scrape(int port, const std::string& request = "GET /metrics HTTP/1.0\r\n\r\n") {
  const UniqueFd fd = ConnectTo(port);
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

TEST(MetricsEndpointTest, OthersWaitForNoConnectionThatSaysNothing) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  // No connection times out during this test.
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {registry}, absl::Hours(1));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(ConnectTo((*endpoint)->port()));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("some_total 1"));
  }
  const UniqueFd half = ConnectTo((*endpoint)->port());
  ASSERT_EQ(send(half.get(), "GET /met", 8, 0), 8);
  EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("some_total 1"));
}

// The process has one descriptor left, which the endpoint takes to accept the connection.
TEST(MetricsEndpointTest, AnswersWithTheLastDescriptor) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {registry}, absl::Hours(1));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("some_total 1"));
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few = {std::min<rlim_t>(limit.rlim_cur, 256), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> others;
  for (int fd = 0; (fd = dup(0)) >= 0;) others.emplace_back(fd);
  ASSERT_EQ(errno, EMFILE);
  others.pop_back();  // for the scraper
  others.pop_back();  // for the endpoint
  EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("some_total 1"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(MetricsEndpointTest, ClosesAConnectionThatDoesNotSendItsRequestInTime) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {}, absl::Milliseconds(100));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const UniqueFd half = ConnectTo((*endpoint)->port());
  ASSERT_EQ(send(half.get(), "GET /met", 8, 0), 8);
  const timeval timeout = {20, 0};
  setsockopt(half.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  char byte;
  EXPECT_EQ(recv(half.get(), &byte, 1, 0), 0);
}

TEST(MetricsEndpointTest, AnswersOtherRequestsWithAnError) {
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  EXPECT_THAT(Scrape(port, "GET / HTTP/1.1\r\n\r\n"), HasSubstr("404 Not Found"));
  EXPECT_THAT(Scrape(port, "POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr("405 "));
  EXPECT_THAT(Scrape(port, std::string(9000, 'x')), HasSubstr("431 "));
  EXPECT_THAT(Scrape(port, "GET /metrics?name=a HTTP/1.1\r\nAccept: */*\r\n\r\n"),
              HasSubstr("200 OK"));
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
