#include "base/daemon/metrics_endpoint.h"

#include <netdb.h>
#include <sys/socket.h>

#include <exception>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/notification.h"
#include "base/rpc/listen_address.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace cohort {
namespace {

// Scrapes are short, and come one after another.
constexpr std::size_t kThreads = 1;
constexpr absl::Duration kBetweenKnocks = absl::Milliseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& address,
                                                                        Sources sources) {
  COHORT_ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
  if (parsed.is_unix()) return absl::InvalidArgumentError(absl::StrCat(address, " has no port"));
  std::unique_ptr<prometheus::Exposer> exposer;
  // The library reports in exceptions; they end here.
  try {
    exposer = std::make_unique<prometheus::Exposer>(address, kThreads);
    for (const auto& source : sources) exposer->RegisterCollectable(source);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", address, ": ", error.what()));
  }
  return absl::WrapUnique(new MetricsEndpoint(parsed.host, std::move(sources), std::move(exposer)));
}

MetricsEndpoint::MetricsEndpoint(std::string host, Sources sources,
                                 std::unique_ptr<prometheus::Exposer> exposer)
    : host_(std::move(host)), sources_(std::move(sources)), exposer_(std::move(exposer)) {}

MetricsEndpoint::~MetricsEndpoint() {
  // The thread that listens looks whether it shall end when somebody connects, or every two
  // seconds.
  const int port = this->port();
  Notification stopped;
  std::thread stop([&] {
    exposer_.reset();
    stopped.Notify();
  });
  while (!stopped.WaitWithTimeout(kBetweenKnocks)) Knock(port);
  stop.join();
}

void MetricsEndpoint::Knock(int port) const {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) return;
  // To an address that stands for all addresses connects to this machine.
  const UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // Nobody there: it has stopped.
  if (fd.get() >= 0) (void)connect(fd.get(), found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
}

}  // namespace cohort
