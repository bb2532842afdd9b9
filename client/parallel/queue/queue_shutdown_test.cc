// Ends of a queue that leave, are shut down or are cancelled, both in one process.
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/parallel/queue/message_queue.h"
#include "client/parallel/queue/message_queue_test_base.h"
#include "client/rendezvous/call/cancellation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Waits until `done` returns true, at most 30 s.
bool Eventually(const std::function<bool()>& done) {
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(30);
  while (!done()) {
    if (Clock::Steady().Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class QueueShutdownTest : public QueueFixture {};

TEST_P(QueueShutdownTest, TheWriterDoesNotWaitForAReaderThatLeft) {
  MakeWriter(64 << 10);
  auto stays = NewReader("stays");
  auto leaves = NewReader("leaves");
  std::thread leaving([&] {
    EXPECT_TRUE(Eventually([&] {
      for (const QueueReader& reader : writer_->readers()) {
        if (reader.name == "leaves" && reader.bytes_behind > 40000) return true;
      }
      return false;
    }));
    leaves = nullptr;
    EXPECT_EQ(stays->Dequeue()->size(), 200000U);
  });
  const absl::Status status = writer_->Enqueue(std::string(200000, 'x'));
  EXPECT_TRUE(status.ok()) << status;
  leaving.join();
  ASSERT_EQ(writer_->departures().size(), 1U);
  EXPECT_EQ(writer_->departures()[0].name, "leaves");
  EXPECT_EQ(writer_->departures()[0].why, "it left: it closed the queue");
  stays = nullptr;
  EXPECT_TRUE(Eventually([&] { return writer_->readers().empty(); }));
  const absl::Status alone = writer_->Enqueue("x");
  EXPECT_EQ(alone.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(alone.message()), AllOf(HasSubstr("leaves"), HasSubstr("stays")));
}

TEST_P(QueueShutdownTest, AfterTheLastValueComesTheEnd) {
  MakeWriter();
  const auto reader = NewReader();
  ASSERT_TRUE(writer_->Enqueue("last").ok());
  writer_->Shutdown("the epoch is over");
  EXPECT_EQ(*reader->Dequeue(), "last");
  for (int i = 0; i < 2; ++i) {
    const absl::Status end = reader->Dequeue().status();
    EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(std::string(end.message()),
                HasSubstr("the writer of \"weights\" shut it down: the epoch is over"));
  }
  EXPECT_EQ(writer_->Enqueue("more").code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(writer_->AwaitReaders(9).code(), absl::StatusCode::kCancelled);
}

TEST_P(QueueShutdownTest, AWriterThatLeavesLingers) {
  MakeWriter();
  const auto reader = NewReader();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(writer_->Enqueue(absl::StrCat(i)).ok());
  writer_ = nullptr;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(*reader->Dequeue(), absl::StrCat(i));
  const absl::Status end = reader->Dequeue().status();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(end.message()), HasSubstr("its writer has left"));
}

TEST_P(QueueShutdownTest, AnotherThreadEndsAWait) {
  MakeWriter();
  const auto reader = NewReader();
  client::Cancellation cancellation;
  std::thread cancelling([&] { cancellation.Cancel(absl::CancelledError("never mind")); });
  const absl::Status status = reader->Dequeue({absl::InfiniteDuration(), &cancellation}).status();
  cancelling.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("never mind"));
  ASSERT_TRUE(writer_->Enqueue("after").ok());
  EXPECT_EQ(*reader->Dequeue(), "after");

  std::thread ending([&] { reader->Shutdown("enough"); });
  EXPECT_THAT(std::string(reader->Dequeue({absl::InfiniteDuration()}).status().message()),
              HasSubstr("this reader was shut down: enough"));
  ending.join();
}

TEST_P(QueueShutdownTest, AReaderThatWasShutDownIsNotWaitedFor) {
  MakeWriter(64 << 10);
  const auto stays = NewReader("stays");
  const auto quits = NewReader("quits");
  ASSERT_TRUE(writer_->Enqueue("unread").ok());
  quits->Shutdown("enough");
  std::thread reading([&] {
    EXPECT_EQ(*stays->Dequeue(), "unread");
    EXPECT_EQ(stays->Dequeue()->size(), 200000U);
  });
  const absl::Status status = writer_->Enqueue(std::string(200000, 'x'));
  EXPECT_TRUE(status.ok()) << status;
  reading.join();
  ASSERT_EQ(writer_->departures().size(), 1U);
  EXPECT_EQ(writer_->departures()[0].name, "quits");
  EXPECT_EQ(writer_->departures()[0].why, "it left: it was shut down: enough");
  for (int i = 0; i < 2; ++i) {
    const absl::Status shut = quits->Dequeue(kShort).status();
    EXPECT_EQ(shut.code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(std::string(shut.message()), HasSubstr("this reader was shut down: enough"));
    quits->Shutdown("again");
  }
}

TEST_P(QueueShutdownTest, AViewStaysValidWhenItsReaderIsShutDown) {
  MakeWriter(64 << 10);
  const auto reader = NewReader();
  const std::string value(20000, 'x');
  ASSERT_TRUE(writer_->Enqueue(value).ok());
  const absl::Status status = reader->DequeueView([&](absl::string_view seen) {
    reader->Shutdown("enough");
    while (writer_->Enqueue(std::string(20000, 'y'), kShort).ok()) {
    }
    EXPECT_EQ(seen, value);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Eventually([&] { return writer_->readers().empty(); }));
}

TEST_P(QueueShutdownTest, ACancellationEndsOpening) {
  MakeWriter(64 << 10);
  const auto slow = NewReader("slow");
  // New readers come after this value, which has no room before it is read.
  std::thread writing([this] {
    const absl::Status status = writer_->Enqueue(std::string(300000, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  });
  EXPECT_TRUE(Eventually([&] { return writer_->readers()[0].bytes_behind > 0; }));
  client::Cancellation cancellation;
  QueueOptions options;
  options.cancellation = &cancellation;
  std::thread cancelling([&] { cancellation.Cancel(absl::CancelledError("enough")); });
  const absl::Status status = MessageQueue::Open(handle_, "late", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("enough"));
  cancelling.join();
  writer_->Shutdown("over");
  writing.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, QueueShutdownTest, ::testing::ValuesIn(kTransports),
                         TransportName);

}  // namespace
}  // namespace cohort::parallel
