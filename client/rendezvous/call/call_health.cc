#include "client/rendezvous/call/call_health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "client/rendezvous/call/call_retries.h"

namespace cohort::client {
namespace {

// A call may be refused again after its pause; until this time it does not count as served.
constexpr absl::Duration kRecentFailure = absl::Milliseconds(500);

// Whether gRPC had no connection, so that the status is not from the coordinator.
bool FailedToConnect(const grpc::Status& status) {
  return absl::StartsWith(status.error_message(), "failed to connect") ||
         absl::StartsWith(status.error_message(), "DNS resolution failed");
}

// "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.7:7700: Failed to connect
// to remote host: Connection refused" in two words. The error at the end has all of it.
std::string Shortly(const grpc::Status& status) {
  const std::string text = status.error_message();
  if (!FailedToConnect(status)) return text;
  const size_t last = text.rfind(": ");
  return last == std::string::npos ? text : text.substr(last + 2);
}

}  // namespace

void CallHealth::OnRepeat(const grpc::Status& failure, absl::Duration pause) {
  MutexLock lock(&mutex_);
  failure_ = failure;
  refused_until_ = Clock::Steady().Now() + pause + kRecentFailure;
}

bool CallHealth::Served() {
  grpc::Status failure;
  bool refused = false;
  {
    MutexLock lock(&mutex_);
    refused = Clock::Steady().Now() < refused_until_;
    if (refused) failure = failure_;
  }
  if (refused && IsDraining(failure)) {
    Notify(AwayKind::kDraining, Shortly(failure));
  } else if (!connection_.reached()) {
    Notify(AwayKind::kUnreachable, Shortly(failure));
  } else if (refused && !FailedToConnect(failure)) {
    Notify(AwayKind::kSilent, Shortly(failure));
  } else if (!may_wait_) {
    Notify(AwayKind::kSilent, "");
  } else {
    return true;
  }
  return false;
}

void CallHealth::Notify(AwayKind kind, std::string detail) const {
  const ConnectionOptions& options = connection_.options();
  if (!options.on_away) return;
  AwayReport report;
  report.kind = kind;
  report.address = options.address;
  report.detail = std::move(detail);
  report.remaining = std::max(deadline_ - Clock::Steady().Now(), absl::ZeroDuration());
  options.on_away(report);
}

}  // namespace cohort::client
