#include "worker/daemon/sessions/session_table.h"

#include <memory>
#include <string>
#include <vector>

#include "base/testing/no_new_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(20);

TEST(SessionTableTest, WithoutAThreadASessionIsRefusedAndTheNextIsOpened) {
  SessionTable sessions;
  {
    const testing::NoNewThreads refuse;
    const absl::Status refused = sessions.Open({"trainer", 1, "host-a"}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("RLIMIT_NPROC"));
  }
  const auto session = sessions.Open({"trainer", 1, "host-a"});
  ASSERT_TRUE(session.ok()) << session.status();
}

TEST(SessionTableTest, SessionsEndWhenNoThreadStarts) {
  SessionTable sessions;
  std::vector<std::shared_ptr<Session>> open;
  for (int i = 0; i < 3; ++i) open.push_back(*sessions.Open({"trainer", i, "host-a"}));
  const testing::NoNewThreads refuse;
  for (const std::shared_ptr<Session>& session : open) sessions.End(session, "it is over");
  EXPECT_TRUE(sessions.AwaitLeft(Clock::Steady().Now() + kSoon));
  EXPECT_EQ(sessions.Stats().sessions, 0);
}

// A join that waits for its group does not delay the end of its session, or of the worker.
TEST(SessionTableTest, TheEndOfASessionCancelsItsJoins) {
  SessionTable sessions;
  const auto session = *sessions.Open({"trainer", 1, "host-a"});
  const auto other = *sessions.Open({"trainer", 2, "host-a"});
  sessions.End(session, "its client is gone");
  EXPECT_EQ(session->joining().reason().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(session->joining().reason().message()), HasSubstr("its client is gone"));
  EXPECT_TRUE(other->joining().reason().ok());
}

TEST(SessionTableTest, DrainCancelsTheJoinsOfAllSessions) {
  SessionTable sessions;
  const auto first = *sessions.Open({"trainer", 1, "host-a"});
  const auto second = *sessions.Open({"trainer", 2, "host-a"});
  sessions.Drain();
  for (const auto& session : {first, second}) {
    EXPECT_EQ(session->joining().reason().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(session->ended());
  }
}

}  // namespace
}  // namespace cohort::worker
