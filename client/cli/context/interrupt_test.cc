#include "client/cli/context/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::ExitedWithCode;

// Each test ends by a signal, so each has a process of its own.
class InterruptDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    // Resets the dispositions that the test inherited.
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }

  [[noreturn]] static void SignalAndWait(int signal) {
    kill(getpid(), signal);
    for (;;) pause();
  }
  static void Say(const char* what) {
    std::fputs(what, stderr);
    std::fflush(stderr);
  }
};

TEST_F(InterruptDeathTest, RunsItsHandlerAndExits) {
  const auto body = [] {
    Interrupt interrupt;
    interrupt.Set([] { Say("left the group"); });
    SignalAndWait(SIGINT);
  };
  EXPECT_EXIT(body(), ExitedWithCode(130), "left the group");
}

TEST_F(InterruptDeathTest, ExitsAtOnceWhenNothingIsSet) {
  const auto body = [] {
    Interrupt interrupt;
    interrupt.Set([] { Say("not this"); });
    interrupt.Set(nullptr);
    SignalAndWait(SIGTERM);
  };
  EXPECT_EXIT(body(), ExitedWithCode(143), "^$");
}

TEST_F(InterruptDeathTest, IgnoredSignalsStayIgnored) {
  const auto body = [] {
    std::signal(SIGINT, SIG_IGN);
    Interrupt interrupt;
    interrupt.Set([] { Say("terminated"); });
    kill(getpid(), SIGINT);
    kill(getpid(), SIGTERM);
    for (;;) pause();
  };
  EXPECT_EXIT(body(), ExitedWithCode(143), "terminated");
}

TEST_F(InterruptDeathTest, SecondSignalDoesNotWaitForTheFirst) {
  const auto body = [] {
    Interrupt interrupt;
    interrupt.Set([] {
      kill(getpid(), SIGINT);
      for (;;) pause();
    });
    SignalAndWait(SIGINT);
  };
  EXPECT_EXIT(body(), ExitedWithCode(130), "");
}

TEST(Interrupt, CanBeTakenDownWithoutASignal) {
  Interrupt interrupt;
  interrupt.Set([] {});
}

}  // namespace
}  // namespace cohort::cli
