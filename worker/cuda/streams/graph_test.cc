#include "worker/cuda/streams/graph.h"

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker::cuda {
namespace {

class GraphTest : public ::testing::Test {
 protected:
  GraphTest() : stream_((ResetFakeRuntime({}), *Stream::Create(0))) {}

  void Await() {
    const absl::Status status =
        Synchronize(stream_.get(), Clock::Steady().Now() + absl::Seconds(60));
    ASSERT_TRUE(status.ok()) << status;
  }

  Stream stream_;
};

TEST_F(GraphTest, ReplaysTheCaptureWithThePresentContents) {
  const DeviceMemory from = *DeviceMemory::Allocate(0, 16);
  const DeviceMemory to = *DeviceMemory::Allocate(0, 16);
  to.data()[15] = 'x';
  absl::StatusOr<Graph> graph = Graph::Capture(
      stream_.get(), [&] { return Copy(to.data(), from.data(), 16, stream_.get()); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  Await();
  EXPECT_EQ(to.data()[15], 'x') << "capturing does nothing";
  for (const char c : std::string("abc")) {
    from.data()[15] = c;
    ASSERT_TRUE(graph->Launch(stream_.get()).ok());
    Await();
    EXPECT_EQ(to.data()[15], c);
  }
}

TEST_F(GraphTest, AFailedCaptureLeavesNothing) {
  const absl::Status status =
      Graph::Capture(stream_.get(), [] { return absl::CancelledError("enough"); }).status();
  EXPECT_EQ(status, absl::CancelledError("enough"));
  const absl::StatusOr<bool> captured = IsCaptured(stream_.get());
  ASSERT_TRUE(captured.ok()) << captured.status();
  EXPECT_FALSE(*captured);
  EXPECT_TRUE(Graph::Capture(stream_.get(), [] { return absl::OkStatus(); }).ok());
}

TEST_F(GraphTest, NamesAnOperationThatCannotBeCaptured) {
  const absl::Status status = Graph::Capture(nullptr, [] { return absl::OkStatus(); }).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("cudaStreamBeginCapture"));
}

}  // namespace
}  // namespace cohort::worker::cuda
