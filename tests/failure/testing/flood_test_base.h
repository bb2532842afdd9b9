// The base of flood tests: a coordinator, callers that must be served during the attack, and the
// measurements.
//
// $COHORT_FLOOD_MAX_DELAY, such as 100ms, makes a test fail when a call of another client takes
// longer: for an idle machine and an optimised build.
//
//   bazel test --config=opt --test_output=all --test_env=COHORT_FLOOD_MAX_DELAY=100ms
//     //tests/failure/raw_clients:http2_flood_test
//     //tests/failure/raw_clients:framed_rpc_flood_test
#ifndef COHORT_TESTS_FAILURE_TESTING_FLOOD_TEST_BASE_H_
#define COHORT_TESTS_FAILURE_TESTING_FLOOD_TEST_BASE_H_

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/limited_coordinator.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/raw_http2.h"
#include "tests/failure/testing/stubs.h"

namespace cohort::testing {

inline constexpr int64_t kMiB = int64_t{1} << 20;
// An attacker that the coordinator does not stop gives up after this many bytes.
inline constexpr size_t kMostBytes = size_t{300} << 20;
inline constexpr absl::Duration kMostTime = absl::Seconds(4);
inline constexpr absl::Duration kCallDeadline = absl::Seconds(5);
// Calls of each bystander that are measured after the attack.
inline constexpr int kCallsAfter = 2000;

using Attack = std::function<void(RawHttp2& connection, int index)>;

// Pauses between two polls of a changing value: without it the test takes the processor from both
// sides.
inline void Pause() { poll(nullptr, 0, 1); }

// Sends what `make` returns until the server closes the connection.
inline void Repeat(RawHttp2& connection, const std::function<std::string()>& make) {
  const Instant deadline = Clock::Steady().Now() + kMostTime;
  for (size_t sent = 0; sent < kMostBytes && Clock::Steady().Now() < deadline;) {
    const std::string bytes = make();
    if (!connection.Send(bytes)) return;
    sent += bytes.size();
  }
}

// Two clients that make one call after the other, by gRPC and by framed RPC.
class Bystanders {
 public:
  explicit Bystanders(const std::string& address)
      : stubs_(address),
        grpc_thread_([this] { MakeCalls(grpc_, [this] { return CallByGrpc(); }); }),
        framed_thread_([this, address] {
          auto members = JoinAll({Connect(address)}, "bystander", 1);
          ASSERT_NE(members[0], nullptr);
          MakeCalls(framed_, [&] { return members[0]->Barrier(); });
        }) {}
  // Precondition: Stop was called.
  ~Bystanders() = default;

  // Expects that each of them gets `more` answers.
  void AwaitCalls(int more) {
    const int grpc_goal = grpc_.count + more;
    const int framed_goal = framed_.count + more;
    const Instant deadline = Clock::Steady().Now() + absl::Seconds(60);
    while ((grpc_.count < grpc_goal || framed_.count < framed_goal) &&
           Clock::Steady().Now() < deadline) {
      Pause();
    }
    EXPECT_GE(grpc_.count, grpc_goal);
    EXPECT_GE(framed_.count, framed_goal);
  }
  // Measures the calls that begin from now on.
  void Measure() { measures_ = true; }
  void Stop() {
    stop_ = true;
    grpc_thread_.join();
    framed_thread_.join();
  }
  // After Stop: the longest call that was measured.
  absl::Duration longest_grpc() const { return grpc_.longest; }
  absl::Duration longest_framed() const { return framed_.longest; }

 private:
  struct Calls {
    std::atomic<int> count = 0;
    absl::Duration longest;
  };

  template <typename Call>
  void MakeCalls(Calls& calls, const Call& call) {
    while (!stop_) {
      const bool counts = measures_;
      const Instant start = Clock::Steady().Now();
      const absl::Status status = call();
      ASSERT_TRUE(status.ok()) << status;
      if (counts) calls.longest = std::max(calls.longest, Clock::Steady().Now() - start);
      ++calls.count;
    }
  }
  absl::Status CallByGrpc() {
    v1::LimitsResponse response;
    const grpc::Status status =
        stubs_.admin->Limits(Context(kCallDeadline).get(), v1::LimitsRequest(), &response);
    return status.ok() ? absl::OkStatus() : absl::UnknownError(status.error_message());
  }

  Stubs stubs_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> measures_ = false;
  Calls grpc_;
  Calls framed_;
  std::thread grpc_thread_;
  std::thread framed_thread_;
};

class FloodTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start(Flags()).ok()) << coordinator_.ErrorText();
  }

  // The coordinator starts with these flags.
  virtual std::vector<std::string> Flags() const { return {}; }

  void TearDown() override {
    // Ten seconds are the default of --drain-grace.
    const absl::StatusOr<int> exit = coordinator_.Terminate(absl::Seconds(11));
    ASSERT_TRUE(exit.ok()) << exit.status();
    EXPECT_EQ(*exit, 0);
  }

  // Runs `attack` on each of `connections` connections, beside a gRPC caller and a framed RPC
  // caller.
  void Run(int connections, const Attack& attack,
           const std::string& greeting = RawHttp2::Greeting()) {
    Bystanders bystanders(coordinator_.address());
    bystanders.AwaitCalls(10);
    const int64_t before = coordinator_.ResidentBytes();
    bystanders.Measure();
    std::vector<std::unique_ptr<RawHttp2>> attackers;
    for (int index = 0; index < connections; ++index) {
      attackers.push_back(std::make_unique<RawHttp2>(coordinator_.port(), greeting));
    }
    int64_t peak = std::max(before, AttackUntilDone(attackers, attack));
    // The coordinator still works on the attacker's bytes for a moment.
    bystanders.AwaitCalls(kCallsAfter);
    peak = std::max(peak, coordinator_.ResidentBytes());
    bystanders.Stop();
    const absl::Duration longest_grpc = bystanders.longest_grpc();
    const absl::Duration longest_framed = bystanders.longest_framed();
    closed_ = std::count_if(attackers.begin(), attackers.end(), [](const auto& attacker) {
      return attacker->AwaitClosed(absl::Seconds(5));
    });
    std::cout << ::testing::UnitTest::GetInstance()->current_test_info()->name() << ": "
              << before / kMiB << " MiB resident before, " << peak / kMiB
              << " MiB at most; longest call by gRPC " << longest_grpc << ", by framed RPC "
              << longest_framed << "; " << closed_ << " of " << connections << " closed"
              << std::endl;
    EXPECT_LE(peak - before, 64 * kMiB * connections);
    if (const char* const limit = std::getenv("COHORT_FLOOD_MAX_DELAY"); limit != nullptr) {
      absl::Duration most;
      ASSERT_TRUE(absl::ParseDuration(limit, &most)) << "COHORT_FLOOD_MAX_DELAY: " << limit;
      EXPECT_LE(std::max(longest_grpc, longest_framed), most);
    }
  }

  // How often the coordinator's log has `text`.
  int Logged(const std::string& text) {
    const std::string log = coordinator_.ErrorText();
    int count = 0;
    for (size_t at = 0; (at = log.find(text, at)) != std::string::npos; at += text.size()) ++count;
    return count;
  }

  LimitedCoordinator coordinator_;
  int64_t closed_ = 0;

 private:
  // Runs `attack` on all connections at once. Returns the most resident bytes of the coordinator
  // meanwhile.
  int64_t AttackUntilDone(const std::vector<std::unique_ptr<RawHttp2>>& attackers,
                          const Attack& attack) {
    std::vector<std::thread> threads;
    std::atomic<size_t> running = attackers.size();
    for (size_t index = 0; index < attackers.size(); ++index) {
      threads.emplace_back([&, index] {
        attack(*attackers[index], static_cast<int>(index));
        --running;
      });
    }
    int64_t peak = 0;
    while (running > 0) {
      peak = std::max(peak, coordinator_.ResidentBytes());
      Pause();
    }
    for (std::thread& thread : threads) thread.join();
    return peak;
  }
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_FLOOD_TEST_BASE_H_
