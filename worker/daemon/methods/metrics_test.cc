#include "worker/daemon/methods/metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, CountsByCollectiveSizeAndCode) {
  Metrics metrics;
  metrics.OnCall(Collective::kAllReduce, 4096, absl::Microseconds(20), absl::StatusCode::kOk);
  metrics.OnCall(Collective::kAllReduce, 1, absl::Microseconds(20), absl::StatusCode::kOk);
  metrics.OnCall(Collective::kAllReduce, 4097, absl::Microseconds(20), absl::StatusCode::kOk);
  metrics.OnCall(Collective::kBarrier, 0, absl::Seconds(1), absl::StatusCode::kDeadlineExceeded);
  const std::string text = metrics.Collect();
  EXPECT_THAT(text,
              HasSubstr("cohort_worker_calls_total{collective=\"all_reduce\",size=\"<=4Ki\"} 2"));
  EXPECT_THAT(text,
              HasSubstr("cohort_worker_calls_total{collective=\"all_reduce\",size=\"<=64Ki\"} 1"));
  EXPECT_THAT(
      text, HasSubstr("cohort_worker_bytes_total{collective=\"all_reduce\",size=\"<=4Ki\"} 4097"));
  EXPECT_THAT(
      text,
      HasSubstr("cohort_worker_errors_total{code=\"DEADLINE_EXCEEDED\",collective=\"barrier\"} 1"));
  EXPECT_THAT(
      text, HasSubstr("cohort_worker_call_seconds_count{collective=\"barrier\",size=\"<=4Ki\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("cohort_worker_sessions")));
}

TEST(MetricsTest, ServesSessionsWhenAsked) {
  SessionTable sessions;
  Metrics metrics;
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0", sessions, {}).ok());
  EXPECT_NE(metrics.port(), 0);
  EXPECT_THAT(metrics.Collect(), HasSubstr("cohort_worker_sessions 0"));
  const absl::StatusOr<std::shared_ptr<Session>> session =
      sessions.Open({"trainer", 4711, "host", ""}, Caller());
  ASSERT_TRUE(session.ok());
  EXPECT_THAT(metrics.Collect(), HasSubstr("cohort_worker_sessions 1"));
  sessions.Drain();
  EXPECT_THAT(metrics.Collect(), HasSubstr("cohort_worker_draining 1"));
  EXPECT_FALSE(sessions.Open({"late", 1, "host", ""}, Caller()).ok());
  metrics.Stop();
}

}  // namespace
}  // namespace cohort::worker
