#include "base/daemon/metrics_endpoint.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/daemon/metrics_access.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/client_metric.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

constexpr char kRequest[] = "GET /metrics HTTP/1.1\r\n\r\n";

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

// The answer by TLS, or the error of the handshake.
std::string ScrapeByTls(int port, TlsFiles files, const std::string& request = kRequest) {
  const UniqueFd fd = ConnectTo(port);
  auto context = TlsContext::Load(std::move(files), TlsSide::kClient);
  if (!context.ok()) return context.status().ToString();
  std::shared_ptr<SSL_CTX> current = (*context)->Current(absl::UnixEpoch());
  // As Prometheus does.
  constexpr unsigned char kProtocols[] = "\2h2\10http/1.1";
  SSL_CTX_set_alpn_protos(current.get(), kProtocols, sizeof(kProtocols) - 1);
  const auto session = TlsSession::Connect(std::move(current), fd.get(), "localhost");
  pollfd input = {fd.get(), POLLIN, 0};
  TlsSession::Progress progress = session->Handshake();
  while (progress == TlsSession::Progress::kWantInput && poll(&input, 1, 20000) == 1) {
    progress = session->Handshake();
  }
  if (progress != TlsSession::Progress::kDone) return session->error().ToString();
  EXPECT_EQ(session->Send(request), static_cast<ssize_t>(request.size()));
  std::string text;
  char part[4096];
  while (poll(&input, 1, 20000) == 1) {
    const ssize_t size = session->Receive(part, sizeof(part));
    if (size < 0 && errno == EAGAIN) continue;
    if (size <= 0) break;
    text.append(part, static_cast<size_t>(size));
  }
  return text.empty() ? session->error().ToString() : text;
}

MetricsEndpoint::Sources OneCounter() {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  return {registry};
}

MetricsAccess AccessByTls(const testing::CertificateAuthority& ca) {
  auto context =
      TlsContext::Load(ca.Sign("server", {"server", "DNS:localhost"}), TlsSide::kHttpServer);
  EXPECT_TRUE(context.ok()) << context.status();
  return {*std::move(context), nullptr};
}

// A counter of its looks, each of which takes 100 ms.
class SlowSource final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    const Instant begin = Clock::Steady().Now();
    while (Clock::Steady().Now() - begin < absl::Milliseconds(100)) std::this_thread::yield();
    prometheus::ClientMetric metric;
    metric.counter.value = ++looks_;
    return {{"looks_total", "", prometheus::MetricType::Counter, {metric}}};
  }
  int looks() const { return looks_; }

 private:
  mutable std::atomic<int> looks_{0};
};

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path) << text;
  return path;
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

TEST(MetricsEndpointTest, AnAnswerMayBeLargerThanWhatASocketTakes) {
  constexpr int kSeries = 512;
  constexpr size_t kBytes = 32 << 10;
  const auto registry = std::make_shared<prometheus::Registry>();
  auto& family = prometheus::BuildCounter().Name("some_total").Register(*registry);
  for (int i = 0; i < kSeries; ++i) {
    family.Add({{"name", absl::StrCat(i, "-", std::string(kBytes, 'n'))}}).Increment();
  }
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {registry});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string answer = Scrape((*endpoint)->port());
  EXPECT_GT(answer.size(), kSeries * kBytes);
  EXPECT_TRUE(absl::EndsWith(answer, "\"} 1\n"));
}

TEST(MetricsEndpointTest, OthersWaitForNoConnectionThatSaysNothing) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  // No connection times out during this test.
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {registry}, {}, absl::Hours(1));
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

// Others connect as fast as they can, and send nothing or half a request.
TEST(MetricsEndpointTest, AFloodOfConnectionsKeepsNoScrapeOut) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {registry}, {}, absl::Hours(1));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  std::atomic<bool> over{false};
  std::vector<std::thread> strangers;
  for (const char* bytes : {"", "GET /metrics HTTP/1.1\r\n"}) {
    strangers.emplace_back([&, bytes] {
      std::deque<UniqueFd> held;
      while (!over) {
        held.push_back(ConnectTo((*endpoint)->port()));
        send(held.back().get(), bytes, strlen(bytes), MSG_NOSIGNAL);
        if (held.size() > 200) held.pop_front();
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Scrape((*endpoint)->port()), HasSubstr("some_total 1")) << i;
  }
  over = true;
  for (std::thread& stranger : strangers) stranger.join();
}

TEST(MetricsEndpointTest, ScrapesThatComeTogetherAreOneLook) {
  constexpr int kScrapes = 50;
  const auto source = std::make_shared<SlowSource>();
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {source});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  std::vector<std::thread> threads;
  for (int i = 0; i < kScrapes; ++i) {
    threads.emplace_back([port] { EXPECT_THAT(Scrape(port), HasSubstr("looks_total ")); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(source->looks(), kScrapes / 5);
  // A scrape by itself sees the present figures.
  const int looks = source->looks();
  EXPECT_THAT(Scrape(port), HasSubstr(absl::StrCat("looks_total ", looks + 1)));
}

// The process has one descriptor left, which the endpoint takes to accept the connection.
TEST(MetricsEndpointTest, AnswersWithTheLastDescriptor) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter().Name("some_total").Register(*registry).Add({}).Increment();
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {registry}, {}, absl::Hours(1));
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
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", {}, {}, absl::Milliseconds(100));
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

TEST(MetricsEndpointTest, ByTlsForClientsWithACertificate) {
  const testing::CertificateAuthority ca(::testing::TempDir());
  MetricsAccess access = AccessByTls(ca);
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", OneCounter(), access);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  const TlsFiles client = ca.Sign("client", {"prometheus"});
  EXPECT_THAT(ScrapeByTls(port, client), HasSubstr("some_total 1"));
  const std::string long_request =
      absl::StrCat("GET /metrics HTTP/1.1\r\nX-Long: ", std::string(8000, 'x'), "\r\n\r\n");
  EXPECT_THAT(ScrapeByTls(port, client, long_request), HasSubstr("some_total 1"));
  TlsFiles without_certificate;
  without_certificate.ca = ca.path();
  EXPECT_THAT(ScrapeByTls(port, without_certificate), HasSubstr("certificate required"));
  EXPECT_EQ(Scrape(port), "") << "a plain connection got an answer";
  EXPECT_THAT(ScrapeByTls(port, client), HasSubstr("some_total 1"));
}

TEST(MetricsEndpointTest, NewFilesCountWithoutARestart) {
  const testing::CertificateAuthority ca(::testing::TempDir());
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", OneCounter(), AccessByTls(ca));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  EXPECT_THAT(ScrapeByTls(port, ca.Sign("client", {"prometheus"})), HasSubstr("some_total 1"));
  // Its file takes the place of the first one's.
  const testing::CertificateAuthority next(::testing::TempDir());
  next.Sign("server", {"server", "DNS:localhost"});
  const TlsFiles client = next.Sign("next-client", {"prometheus"});
  // The endpoint looks at its files once a second, when a client connects.
  std::string answer;
  for (const absl::Time end = absl::Now() + absl::Seconds(20);
       !absl::StrContains(answer, "some_total 1") && absl::Now() < end;) {
    answer = ScrapeByTls(port, client);
  }
  EXPECT_THAT(answer, HasSubstr("some_total 1"));
  EXPECT_THAT(ScrapeByTls(port, ca.Sign("old-client", {"prometheus"})), HasSubstr("alert"));
}

TEST(MetricsEndpointTest, ThePolicyNamesWhoMayRead) {
  const testing::CertificateAuthority ca(::testing::TempDir());
  MetricsAccess access = AccessByTls(ca);
  // The token is "secret".
  auto policy = AccessPolicy::Load(WriteFile(
      "policy.json",
      R"({"rules": [{"identity": "dns:prometheus", "tenant": "team-a", "role": "observer"},
                    {"identity": "token:scraper", "tenant": "*", "role": "observer"}],
          "tokens": [{"name": "scraper", "sha256":
              "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}]})"));
  ASSERT_TRUE(policy.ok()) << policy.status();
  access.policy = *std::move(policy);
  auto endpoint = MetricsEndpoint::Start("127.0.0.1:0", OneCounter(), access);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  EXPECT_THAT(ScrapeByTls(port, ca.Sign("client", {"prometheus", "DNS:prometheus"})),
              HasSubstr("some_total 1"));
  const TlsFiles stranger = ca.Sign("stranger", {"stranger", "DNS:stranger"});
  EXPECT_THAT(ScrapeByTls(port, stranger),
              AllOf(HasSubstr("403 Forbidden"),
                    HasSubstr("metrics needs the role observer in a tenant, and dns:stranger has "
                              "no role there")));
  EXPECT_THAT(
      ScrapeByTls(port, stranger, "GET /metrics HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n"),
      HasSubstr("some_total 1"));
  EXPECT_THAT(ScrapeByTls(port, stranger,
                          "GET /metrics HTTP/1.1\r\nauthorization:\tbearer  secret \r\n\r\n"),
              HasSubstr("some_total 1"));
  // A token that is not known counts in place of the certificate.
  EXPECT_THAT(ScrapeByTls(port, ca.Sign("client", {"prometheus", "DNS:prometheus"}),
                          "GET /metrics HTTP/1.1\r\nAuthorization: Bearer guess\r\n\r\n"),
              HasSubstr("403 Forbidden"));
  for (const char* const wrong :
       {"Bearer secre", "Bearer secret2", "Bearersecret", "Basic secret"}) {
    EXPECT_THAT(
        ScrapeByTls(port, stranger,
                    absl::StrCat("GET /metrics HTTP/1.1\r\nauthorization: ", wrong, "\r\n\r\n")),
        HasSubstr("403 Forbidden"))
        << wrong;
  }
}

TEST(MetricsEndpointTest, TheFiguresOfATenantAreForItsObservers) {
  const auto registry = std::make_shared<prometheus::Registry>();
  auto& waits = prometheus::BuildCounter().Name("waits_total").Register(*registry);
  waits.Add({{"tenant", "team-a"}}).Increment();
  waits.Add({{"tenant", "team-b"}}).Increment();
  waits.Add({{"path", "tcp"}}).Increment();
  MetricsAccess access;
  // The token is "secret".
  auto policy = AccessPolicy::Load(
      WriteFile("tenants.json",
                R"({"rules": [{"identity": "anonymous", "tenant": "team-b", "role": "observer"},
                    {"identity": "token:scraper", "tenant": "*", "role": "observer"}],
          "tokens": [{"name": "scraper", "sha256":
              "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}]})"));
  ASSERT_TRUE(policy.ok()) << policy.status();
  access.policy = *std::move(policy);
  // The looks are slow, and another connection is open: clients could share one.
  auto endpoint =
      MetricsEndpoint::Start("127.0.0.1:0", {registry, std::make_shared<SlowSource>()}, access);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int port = (*endpoint)->port();
  const UniqueFd open = ConnectTo(port);
  ASSERT_EQ(send(open.get(), "GET", 3, 0), 3);
  EXPECT_THAT(Scrape(port), AllOf(HasSubstr("team-b"), HasSubstr("tcp"), Not(HasSubstr("team-a"))));
  EXPECT_THAT(Scrape(port, "GET /metrics HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n"),
              AllOf(HasSubstr("team-b"), HasSubstr("tcp"), HasSubstr("team-a")));
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
