// Errors of a session before any call.
#include "client/collective/remote/worker_session.h"

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/rendezvous/call/cancellation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::HasSubstr;

absl::Status Connect(const std::string& address, absl::Duration timeout = absl::Hours(1)) {
  WorkerSessionOptions options;
  options.address = address;
  options.connect_timeout = timeout;
  return WorkerSession::Connect(options).status();
}

TEST(WorkerSessionTest, AddressesThatCannotBeAreRefusedAtOnce) {
  for (const char* const address : {"", "worker", "worker:", "worker:port", "worker:0",
                                    "worker:65536", ":7800", "unix:", "unix://"}) {
    const absl::Status status = Connect(address);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("\"", address, "\"")));
  }
}

TEST(WorkerSessionTest, APathIsAsLongAsUnixSocketsHaveThem) {
  const std::string longest = absl::StrCat("/", std::string(106, 'x'));
  for (const char* const scheme : {"unix:", "unix://"}) {
    const absl::Status refused = Connect(absl::StrCat(scheme, longest, "y"));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("has 108 bytes"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("107 at most"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat(scheme, longest)));
    // No worker is there, which is another error.
    const absl::Status absent = Connect(absl::StrCat(scheme, longest), absl::Milliseconds(50));
    EXPECT_EQ(absent.code(), absl::StatusCode::kUnavailable) << absent;
  }
}

TEST(WorkerSessionTest, ACancelledConnectEndsAtOnce) {
  Cancellation cancellation;
  const CancellationScope scope(cancellation);
  // No worker listens there. The cancellation comes before the call, or while it waits.
  const std::string address = "unix:/no/such/worker";
  std::thread canceller([&] { cancellation.Cancel(absl::CancelledError("a signal came")); });
  EXPECT_EQ(Connect(address), absl::CancelledError("a signal came"));
  canceller.join();
  EXPECT_EQ(Connect(address), absl::CancelledError("a signal came"));
}

}  // namespace
}  // namespace cohort::client
