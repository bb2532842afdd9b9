// Values and readers of a queue with both ends in one process.
#include "client/parallel/queue/message_queue.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/queue/message_queue_test_base.h"
#include "cohort/v1/queue.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// COHORT_TEST_SEED repeats a run.
uint64_t TestSeed() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

// `size` bytes, which depend on the seed.
std::string Value(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::string value(size + 8, '\0');
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t bits = random();
    std::memcpy(&value[i], &bits, sizeof(bits));
  }
  value.resize(size);
  return value;
}

class MessageQueueTest : public QueueFixture {};

TEST_P(MessageQueueTest, EveryReaderGetsEveryValueInOrder) {
  MakeWriter();
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(absl::StrCat("COHORT_TEST_SEED=", seed));
  constexpr uint64_t kValues = 200;
  std::vector<std::string> values;
  for (uint64_t i = 0; i < kValues; ++i) {
    constexpr size_t kSizes[] = {0, 1, 15, 16, 1000, 65536, 130000, 131072, 300000};
    values.push_back(Value(seed + i, i == 100 ? size_t{10} << 20 : kSizes[(seed + i) % 9]));
  }
  std::vector<std::unique_ptr<MessageQueue>> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(NewReader(absl::StrCat("reader ", i)));
  std::vector<std::thread> threads;
  for (const auto& reader : readers) {
    ASSERT_NE(reader, nullptr);
    EXPECT_THAT(reader->path(), HasSubstr(streams() ? "stream " : "shared memory"));
    threads.emplace_back([&, queue = reader.get()] {
      for (uint64_t i = 0; i < kValues; ++i) {
        const std::string& expected = values[i];
        if (i % 2 == 0) {
          const absl::StatusOr<std::string> value = queue->Dequeue();
          ASSERT_TRUE(value.ok()) << value.status();
          ASSERT_TRUE(*value == expected) << i;
        } else {
          const absl::Status status = queue->DequeueView([&](absl::string_view value) {
            EXPECT_TRUE(value == expected) << i;
            return absl::OkStatus();
          });
          ASSERT_TRUE(status.ok()) << status;
        }
      }
    });
  }
  for (const std::string& value : values) {
    const absl::Status status = writer_->Enqueue(value);
    EXPECT_TRUE(status.ok()) << status;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(writer_->readers().size(), 3U);
  for (const QueueReader& reader : writer_->readers()) {
    EXPECT_THAT(reader.path,
                ::testing::StartsWith(GetParam() == Transport::kMemory   ? "shared memory"
                                      : GetParam() == Transport::kStream ? "stream 127.0.0.1:"
                                                                         : "stream [::1]:"));
  }
  EXPECT_TRUE(writer_->departures().empty());
}

TEST_P(MessageQueueTest, NoValueIsDroppedForALaggingReader) {
  MakeWriter(64 << 10);
  const auto reader = NewReader("slow");
  const std::string value(1000, 'x');
  int written = 0;
  absl::Status full;
  while ((full = writer_->Enqueue(value, kShort)).ok()) ++written;
  EXPECT_EQ(full.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr("the queue \"weights\": "), HasSubstr("slow is "),
                    HasSubstr(absl::StrCat(written, " values) behind"))));
  EXPECT_EQ(written, 64);
  for (int i = 0; i < written; ++i) ASSERT_EQ(*reader->Dequeue(), value);
  EXPECT_EQ(reader->Dequeue(kShort).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(writer_->Enqueue("next").ok());
  EXPECT_EQ(*reader->Dequeue(), "next");
}

TEST_P(MessageQueueTest, AValueThatCameInPartIsFinishedLater) {
  MakeWriter(64 << 10);
  const auto reader = NewReader();
  const std::string value = Value(7, 1 << 20);
  std::thread writing([&] { EXPECT_TRUE(writer_->Enqueue(value).ok()); });
  absl::StatusOr<std::string> read = absl::DeadlineExceededError("");
  while (read.status().code() == absl::StatusCode::kDeadlineExceeded) {
    read = reader->Dequeue({absl::Microseconds(50)});
  }
  writing.join();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == value);
}

TEST_P(MessageQueueTest, AReaderThatComesLateReadsWhatIsWrittenThen) {
  MakeWriter();
  const auto first = NewReader();
  ASSERT_TRUE(writer_->Enqueue("one").ok());
  const auto second = NewReader();
  EXPECT_TRUE(writer_->AwaitReaders(2).ok());
  EXPECT_EQ(writer_->AwaitReaders(3, kShort).code(), absl::StatusCode::kDeadlineExceeded);
  for (const int count : {0, -1}) EXPECT_TRUE(writer_->AwaitReaders(count, kShort).ok()) << count;
  ASSERT_TRUE(writer_->Enqueue("two").ok());
  EXPECT_EQ(*first->Dequeue(), "one");
  EXPECT_EQ(*first->Dequeue(), "two");
  EXPECT_EQ(*second->Dequeue(), "two");
}

TEST_P(MessageQueueTest, NamesAndReasonsAreAnyBytes) {
  const std::string many(5000, '\xFF');
  QueueOptions options;
  if (streams()) options.listen = "127.0.0.1:0";
  auto writer = MessageQueue::CreateExternal(many, options);
  ASSERT_TRUE(writer.ok()) << writer.status();
  writer_ = *std::move(writer);
  handle_ = writer_->handle();
  const auto reader = NewReader(many);
  ASSERT_NE(reader, nullptr);
  ASSERT_TRUE(writer_->AwaitReaders(1).ok());
  EXPECT_THAT(writer_->readers()[0].name, ::testing::StartsWith("???"));
  // 512 bytes end inside of a character.
  std::string reason = "x";
  for (int i = 0; i < 300; ++i) reason += "\xC3\xA9";
  writer_->Shutdown(reason);
  const absl::Status end = reader->Dequeue().status();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(end.message()), HasSubstr("\xC3\xA9\xC3\xA9"));
}

TEST_P(MessageQueueTest, AViewIsReadHoweverItEnds) {
  MakeWriter();
  const auto reader = NewReader();
  ASSERT_TRUE(writer_->Enqueue(std::string(100000, 'x')).ok());
  ASSERT_TRUE(writer_->Enqueue("next").ok());
  EXPECT_THROW((void)reader->DequeueView(
                   [](absl::string_view) -> absl::Status { throw std::runtime_error("bad"); }),
               std::runtime_error);
  EXPECT_EQ(*reader->Dequeue(), "next");
}

TEST_P(MessageQueueTest, AnAcquiredViewIsOpenUntilItIsDestroyed) {
  MakeWriter();
  const auto reader = NewReader();
  const std::string large(100000, 'x');
  ASSERT_TRUE(writer_->Enqueue(large).ok());
  ASSERT_TRUE(writer_->Enqueue("next").ok());
  EXPECT_EQ(writer_->AcquireView().status().code(), absl::StatusCode::kFailedPrecondition);
  {
    absl::StatusOr<QueueView> view = reader->AcquireView();
    ASSERT_TRUE(view.ok()) << view.status();
    const QueueView moved = *std::move(view);
    EXPECT_EQ(moved.value(), large);
    const absl::Status second = reader->Dequeue().status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()), HasSubstr("a view of one is open"));
    EXPECT_GT(writer_->readers()[0].bytes_behind, 100000);
  }
  EXPECT_EQ(*reader->Dequeue(), "next");
}

TEST_P(MessageQueueTest, AReaderNeedsTheToken) {
  MakeWriter();
  v1::QueueHandle stolen = Parsed(handle_);
  stolen.set_token(std::string(16, 'x'));
  QueueOptions options;
  options.join_timeout = absl::Seconds(10);
  const absl::Status status =
      MessageQueue::Open(stolen.SerializeAsString(), "a thief", options).status();
  EXPECT_EQ(status.code(), streams() ? absl::StatusCode::kPermissionDenied
                                     : absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not the token"));
  EXPECT_TRUE(writer_->readers().empty());
  EXPECT_EQ(writer_->Enqueue("x").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(MessageQueueTest, CallsOfTheOtherEndAreRefused) {
  MakeWriter();
  const auto reader = NewReader();
  EXPECT_EQ(reader->Enqueue("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reader->AwaitReaders(1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(writer_->Dequeue().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*writer_->Broadcast("x"), "x");
  EXPECT_EQ(*reader->Broadcast("ignored"), "x");
  const absl::Status large = writer_->Enqueue(std::string((16 << 20) + 1, 'x'));
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.message()), HasSubstr("max_value_bytes is 16777216"));
}

INSTANTIATE_TEST_SUITE_P(Transports, MessageQueueTest, ::testing::ValuesIn(kTransports),
                         TransportName);

}  // namespace
}  // namespace cohort::parallel
