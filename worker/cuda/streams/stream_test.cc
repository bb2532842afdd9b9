#include "worker/cuda/streams/stream.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/cuda/streams/event.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker::cuda {
namespace {

Instant In(absl::Duration time) { return Clock::Steady().Now() + time; }
Instant Soon() { return In(absl::Seconds(30)); }

class StreamTest : public testing::Test {
 protected:
  StreamTest() { ResetFakeRuntime({2}); }
  ~StreamTest() override { EXPECT_EQ(AliveInFakeRuntime(), ""); }
};

TEST_F(StreamTest, WaitsForItsWorkAndNoLongerThanTheDeadline) {
  absl::StatusOr<Stream> stream = Stream::Create(1);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(DeviceOf(stream->get()).value(), 1);
  EXPECT_TRUE(IsIdle(stream->get()).value());
  EXPECT_EQ(Synchronize(stream->get(), In(-absl::Seconds(1))), absl::OkStatus());
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
  EXPECT_FALSE(IsIdle(stream->get()).value());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "not being ready is no error";
  const absl::Status late = Synchronize(stream->get(), In(absl::Milliseconds(2)));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message().find("the work of a stream on CUDA device 1 is not done after "), 0u)
      << late;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  gate.Open();
  EXPECT_EQ(Synchronize(stream->get(), Soon()), absl::OkStatus());
}

// Work that is enqueued later is not waited for.
TEST_F(StreamTest, WaitsForEarlierWork) {
  absl::StatusOr<Stream> stream = Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  StreamGate first;
  ASSERT_EQ(first.Close(stream->get()), cudaSuccess);
  absl::StatusOr<Event> event = Event::Create(0);
  ASSERT_TRUE(event.ok());
  EXPECT_TRUE(event->Query().value()) << "never recorded";
  EXPECT_EQ(event->Record(stream->get()), absl::OkStatus());
  StreamGate second;
  ASSERT_EQ(second.Close(stream->get()), cudaSuccess);
  EXPECT_FALSE(event->Query().value());
  first.Open();
  EXPECT_EQ(event->Wait(Soon()), absl::OkStatus());
  EXPECT_FALSE(IsIdle(stream->get()).value());
  second.Open();
  EXPECT_EQ(Synchronize(stream->get(), Soon()), absl::OkStatus());
}

TEST_F(StreamTest, AnEventHoldsBackAnotherDevicesStream) {
  absl::StatusOr<Stream> first = Stream::Create(0);
  absl::StatusOr<Stream> second = Stream::Create(1);
  ASSERT_TRUE(first.ok() && second.ok());
  StreamGate gate;
  ASSERT_EQ(gate.Close(first->get()), cudaSuccess);
  {
    absl::StatusOr<Event> event = Event::Create(0);
    ASSERT_TRUE(event.ok());
    EXPECT_EQ(event->Record(second->get()).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(event->Record(first->get()), absl::OkStatus());
    EXPECT_EQ(event->HoldBack(second->get()), absl::OkStatus());
  }
  EXPECT_FALSE(IsIdle(second->get()).value());
  gate.Open();
  EXPECT_EQ(Synchronize(second->get(), Soon()), absl::OkStatus());
  EXPECT_TRUE(IsIdle(first->get()).value());
}

TEST_F(StreamTest, EventsMeasure) {
  absl::StatusOr<Stream> stream = Stream::Create(0);
  absl::StatusOr<Event> start = Event::Create(0, Event::Timing::kOn);
  absl::StatusOr<Event> end = Event::Create(0, Event::Timing::kOn);
  absl::StatusOr<Event> untimed = Event::Create(0);
  ASSERT_TRUE(stream.ok() && start.ok() && end.ok() && untimed.ok());
  EXPECT_EQ(Event::Elapsed(*start, *end).status().code(), absl::StatusCode::kInvalidArgument);
  StreamGate gate;
  EXPECT_EQ(start->Record(stream->get()), absl::OkStatus());
  ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
  EXPECT_EQ(end->Record(stream->get()), absl::OkStatus());
  EXPECT_EQ(untimed->Record(stream->get()), absl::OkStatus());
  EXPECT_EQ(Event::Elapsed(*start, *end).status().code(), absl::StatusCode::kUnavailable);
  gate.Open();
  EXPECT_EQ(end->Wait(Soon()), absl::OkStatus());
  EXPECT_GE(Event::Elapsed(*start, *end).value(), absl::ZeroDuration());
  EXPECT_EQ(untimed->Wait(Soon()), absl::OkStatus());
  EXPECT_EQ(Event::Elapsed(*start, *untimed).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(StreamTest, StreamsAndEventsAreMovable) {
  absl::StatusOr<Stream> stream = Stream::Create(0);
  absl::StatusOr<Stream> other = Stream::Create(1);
  absl::StatusOr<Event> event = Event::Create(0);
  ASSERT_TRUE(stream.ok() && other.ok() && event.ok());
  const cudaStream_t handle = stream->get();
  Stream moved = *std::move(stream);
  EXPECT_EQ(moved.get(), handle);
  EXPECT_EQ(stream->get(), nullptr);
  *other = std::move(moved);
  EXPECT_EQ(other->get(), handle);
  EXPECT_EQ(other->device(), 0);
  Event event_moved = *std::move(event);
  EXPECT_EQ(event_moved.Record(other->get()), absl::OkStatus());
  EXPECT_EQ(event_moved.Wait(Soon()), absl::OkStatus());
}

TEST_F(StreamTest, WhetherAStreamIsCapturedCanBeAsked) {
  absl::StatusOr<Stream> stream = Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(*IsCaptured(stream->get()), false);
  ASSERT_EQ(cudaStreamBeginCapture(stream->get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(*IsCaptured(stream->get()), true);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream->get(), &graph), cudaSuccess) << "it does no harm";
  EXPECT_EQ(*IsCaptured(stream->get()), false);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(StreamTest, FailuresOfTheDeviceEndAWait) {
  absl::StatusOr<Stream> stream = Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  FailNextCall("cudaEventQuery", cudaErrorLaunchFailure, 3);
  {
    StreamGate gate;
    ASSERT_EQ(gate.Close(stream->get()), cudaSuccess);
    const absl::Status failed = Synchronize(stream->get(), Soon());
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal) << failed;
  }
  FailNextCall("cudaStreamCreateWithFlags", cudaErrorMemoryAllocation);
  EXPECT_EQ(Stream::Create(0).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Stream::Create(2).status().code(), absl::StatusCode::kInvalidArgument);
  FailNextCall("cudaEventCreateWithFlags", cudaErrorMemoryAllocation);
  EXPECT_EQ(Event::Create(0).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(StreamTest, ACapturedStreamCannotBeWaitedFor) {
  absl::StatusOr<Stream> stream = Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  ASSERT_EQ(cudaStreamBeginCapture(stream->get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(Synchronize(stream->get(), Soon()).code(), absl::StatusCode::kFailedPrecondition);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream->get(), &graph), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace cohort::worker::cuda
