#include "base/rpc/status_conversion.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

const std::vector<std::pair<absl::StatusCode, grpc::StatusCode>>& AllCodes() {
  static const auto* const kCodes = new std::vector<std::pair<absl::StatusCode, grpc::StatusCode>>{
      {absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
      {absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN},
      {absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
      {absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
      {absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {absl::StatusCode::kAborted, grpc::StatusCode::ABORTED},
      {absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
      {absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
      {absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL},
      {absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
      {absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
      {absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED},
  };
  return *kCodes;
}

TEST(StatusConversionTest, OkBothWays) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(StatusConversionTest, EveryCodeBothWays) {
  for (const auto& [ours, theirs] : AllCodes()) {
    const grpc::Status out = ToGrpcStatus(absl::Status(ours, "why"));
    EXPECT_EQ(out.error_code(), theirs);
    EXPECT_EQ(out.error_message(), "why");
    EXPECT_EQ(FromGrpcStatus(out), absl::Status(ours, "why"));
  }
}

TEST(StatusConversionTest, CodeOutOfRangeIsUnknown) {
  // A larger value would not fit the enum's bits, and making it would be undefined.
  const grpc::Status odd(static_cast<grpc::StatusCode>(31), "odd");
  EXPECT_EQ(FromGrpcStatus(odd).code(), absl::StatusCode::kUnknown);
}

TEST(StatusConversionTest, DetailsSurviveTheRoundTrip) {
  absl::Status status = absl::AbortedError("old generation");
  const std::string details("\x0a\x03job\x00\xff", 7);
  status.SetPayload(kErrorDetailsUrl, absl::Cord(details));
  const grpc::Status out = ToGrpcStatus(status);
  EXPECT_EQ(out.error_details(), details);
  EXPECT_EQ(FromGrpcStatus(out), status);
}

TEST(StatusConversionTest, OversizeDetailsAreLeftOut) {
  absl::Status status = absl::AbortedError("x");
  status.SetPayload(kErrorDetailsUrl, absl::Cord(std::string(kMaxErrorDetailsBytes + 1, 'd')));
  EXPECT_EQ(ToGrpcStatus(status).error_details(), "");
}

TEST(StatusConversionTest, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(std::string(kMaxStatusTextBytes, 'a')))
                .error_message()
                .size(),
            kMaxStatusTextBytes);
  std::string text;
  while (text.size() < 3000) text += "\xe2\x82\xac";  // the euro sign, three bytes
  const std::string cut = ToGrpcStatus(absl::InternalError(text)).error_message();
  EXPECT_LE(cut.size(), kMaxStatusTextBytes);
  EXPECT_THAT(cut, testing::EndsWith("\xe2\x82\xac [cut]"));
}

}  // namespace
}  // namespace cohort
