#include "worker/cuda/device/cuda_error.h"

#include <string>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker::cuda {
namespace {

using testing::HasSubstr;

class ErrorTest : public testing::Test {
 protected:
  ErrorTest() { ResetFakeRuntime(); }
};

absl::Status Allocate(void** memory, size_t bytes) {
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaMalloc(memory, bytes)));
  return absl::OkStatus();
}

TEST_F(ErrorTest, NamesTheFunctionAndTheErrorAndTakesItAway) {
  void* memory = nullptr;
  EXPECT_EQ(Allocate(&memory, 0), absl::OkStatus());
  const absl::Status status = Allocate(&memory, size_t{1} << 40);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "cudaMalloc: cudaErrorMemoryAllocation (out of memory)");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(ErrorTest, EachKindHasItsCode) {
  const auto code = [](cudaError_t error) { return ToStatus(error, "f()").code(); };
  EXPECT_EQ(code(cudaSuccess), absl::StatusCode::kOk);
  EXPECT_EQ(code(cudaErrorInvalidValue), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(cudaErrorInvalidResourceHandle), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(cudaErrorNotSupported), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(cudaErrorNotReady), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(cudaErrorStreamCaptureInvalidated), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(cudaErrorUnknown), absl::StatusCode::kInternal);
  EXPECT_EQ(ToStatus(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ToStatus(CUDA_SUCCESS, "cuMemCreate"), absl::OkStatus());
}

TEST_F(ErrorTest, WithoutADeviceTheErrorNamesARemedy) {
  FakeMachine machine;
  machine.missing = cudaErrorInsufficientDriver;
  ResetFakeRuntime(machine);
  int count = 0;
  absl::Status status = COHORT_CUDA_CALL(cudaGetDeviceCount(&count));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no NVIDIA driver is found here"));
  ResetFakeRuntime({0});
  status = COHORT_CUDA_CALL(cudaGetDeviceCount(&count));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST_F(ErrorTest, ALostContextIsSaidToBeLost) {
  LoseContext(cudaErrorIllegalAddress);
  void* memory = nullptr;
  const absl::Status status = Allocate(&memory, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("an illegal memory access"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("only a new process can use the GPU"));
  EXPECT_TRUE(ContextIsLost(cudaErrorIllegalAddress));
  EXPECT_FALSE(ContextIsLost(cudaErrorMemoryAllocation));
}

}  // namespace
}  // namespace cohort::worker::cuda
