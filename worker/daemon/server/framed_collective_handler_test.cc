#include "worker/daemon/server/framed_collective_handler.h"

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "cohort/v1/worker.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/daemon/methods/collective_request.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxMessageBytes = 4096;

class FramedCollectiveHandlerTest : public ::testing::Test {
 protected:
  absl::Status Run(const std::string& request) {
    std::string answer;
    std::shared_ptr<const void> kept;
    const absl::Status status = handler_.Run(0, request, /*access=*/nullptr, &answer, &kept);
    EXPECT_EQ(answer, "");
    return status;
  }

  static WorkerServiceOptions Options() {
    WorkerServiceOptions options;
    options.max_message_bytes = kMaxMessageBytes;
    return options;
  }

  SessionTable sessions_;
  CallGate gate_{8, 8};
  Metrics metrics_;
  WorkerService service_{Options(), sessions_, gate_, metrics_};
  FramedCollectiveHandler handler_{service_};
};

TEST_F(FramedCollectiveHandlerTest, AnswersAsGrpcDoes) {
  v1::RunCollectiveRequest request;
  request.set_session(std::string(16, 'x'));
  const absl::Status unknown = Run(request.SerializeAsString());
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("session"));
  const absl::Status missing = Run("");
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(missing.message(), HasSubstr("session"));
}

TEST_F(FramedCollectiveHandlerTest, ARequestThatIsNoMessageIsRejected) {
  const absl::Status status = Run(std::string(100, '\xff'));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("no message"));
}

TEST_F(FramedCollectiveHandlerTest, ALongTextIsRejected) {
  v1::RunCollectiveRequest request;
  request.set_session(std::string(16, 'x'));
  request.set_why(std::string(4097, 'x'));
  EXPECT_EQ(Run(request.SerializeAsString()).message(), "why: 4097 bytes; at most 4096");
}

TEST_F(FramedCollectiveHandlerTest, TooManyFieldsAreRejected) {
  std::string request;
  for (int i = 0; i <= CollectiveRequest::kMostFields; ++i)
    request += "\x78\x01";  // field 15, which there is not
  EXPECT_THAT(Run(request).message(), HasSubstr("RunCollectiveRequest: more than 2097152 fields"));
}

}  // namespace
}  // namespace cohort::worker
