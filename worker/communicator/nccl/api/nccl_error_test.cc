#include "worker/communicator/nccl/api/nccl_error.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Expected {
  ncclResult_t result;
  absl::StatusCode code;
  const char* text;
};

TEST(NcclErrorTest, EveryResultHasItsCodeAndText) {
  FakeNcclApi nccl;
  for (const Expected& expected : {
           Expected{ncclUnhandledCudaError, absl::StatusCode::kInternal,
                    "ncclUnhandledCudaError: a call to CUDA failed inside NCCL"},
           Expected{ncclSystemError, absl::StatusCode::kUnavailable,
                    "ncclSystemError: a call to the system failed"},
           Expected{ncclInternalError, absl::StatusCode::kInternal,
                    "ncclInternalError: a bug in NCCL"},
           Expected{ncclInvalidArgument, absl::StatusCode::kInvalidArgument,
                    "ncclInvalidArgument: NCCL does not accept an argument"},
           Expected{ncclInvalidUsage, absl::StatusCode::kInternal,
                    "ncclInvalidUsage: a call broke the rules of NCCL"},
           Expected{ncclRemoteError, absl::StatusCode::kAborted,
                    "ncclRemoteError: another rank failed, or is gone"},
           Expected{static_cast<ncclResult_t>(9), absl::StatusCode::kUnknown,
                    "result 9: not known to this program"},
       }) {
    const absl::Status status = NcclError(nccl, expected.result, "ncclAllReduce");
    EXPECT_EQ(status.code(), expected.code) << expected.text;
    EXPECT_THAT(std::string(status.message()),
                StartsWith(std::string("ncclAllReduce failed with ") + expected.text));
    EXPECT_EQ(NcclError(nccl, expected.result, "ncclAllReduce"), status);
  }
}

TEST(NcclErrorTest, AnOperationInProgressIsNoError) {
  FakeNcclApi nccl;
  EXPECT_TRUE(NcclError(nccl, ncclSuccess, "ncclAllReduce").ok());
  EXPECT_TRUE(NcclError(nccl, ncclInProgress, "ncclAllReduce").ok());
}

TEST(NcclErrorTest, SaysWhatNcclSaid) {
  FakeNcclApi nccl;
  EXPECT_THAT(std::string(NcclError(nccl, ncclSystemError, "ncclSend").message()),
              HasSubstr("NCCL_DEBUG=WARN tells more"));
  nccl.FailNext("ncclGroupStart", ncclSystemError);
  const ncclResult_t result = nccl.GroupStart();
  EXPECT_THAT(std::string(NcclError(nccl, result, "ncclGroupStart").message()),
              AllOf(HasSubstr("NCCL last said: ncclGroupStart was told to fail"),
                    Not(HasSubstr("NCCL_DEBUG"))));
}

TEST(NcclErrorTest, TheTextOfAnErrorHasNoUniqueId) {
  FakeNcclApi nccl;
  ncclUniqueId id;
  ASSERT_EQ(nccl.GetUniqueId(&id), ncclSuccess);
  nccl.FailNext("ncclCommInitRankConfig", ncclSystemError);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = nccl.CommInitRankConfig(&comm, 2, id, 0, nullptr);
  ASSERT_EQ(result, ncclSystemError);
  EXPECT_THAT(std::string(NcclError(nccl, result, "ncclCommInitRankConfig").message()),
              Not(HasSubstr(id.internal)));
}

}  // namespace
}  // namespace cohort::worker
