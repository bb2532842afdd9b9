// Errors of options before a queue exists.
#include <string>

#include "client/collective/testing/lone_group.h"
#include "client/parallel/queue/message_queue.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

TEST(QueueOptionsTest, AGroupOfOneWaitsForNoReader) {
  client::LoneGroup group;
  QueueOptions options;
  options.blocks = 1;
  options.block_bytes = 4096;
  auto queue = MessageQueue::Create(group, options);
  ASSERT_TRUE(queue.ok()) << queue.status();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE((*queue)->Enqueue(std::string(1000, 'x')).ok());

  auto queues = CreateSingleReaderQueues(group, 0, options);
  ASSERT_TRUE(queues.ok()) << queues.status();
  ASSERT_EQ(queues->all.size(), 1U);
  ASSERT_TRUE(queues->own->Enqueue("to myself").ok());
  EXPECT_EQ(*queues->all[0]->Dequeue(), "to myself");
}

TEST(QueueOptionsTest, OptionsThatMakeNoSense) {
  client::LoneGroup group;
  const auto error_of = [&](const QueueOptions& options) {
    const absl::Status status = MessageQueue::Create(group, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  QueueOptions options;
  options.writer_rank = 1;
  EXPECT_THAT(error_of(options), HasSubstr("writer_rank 1 is no rank of a group of 1"));
  options = {};
  options.writer_rank = -1;
  EXPECT_THAT(error_of(options), HasSubstr("writer_rank -1"));
  options = {};
  options.blocks = 0;
  EXPECT_THAT(error_of(options), HasSubstr("blocks 0"));
  options = {};
  options.max_value_bytes = 0;
  EXPECT_THAT(error_of(options), HasSubstr("max_value_bytes 0"));
  options = {};
  options.external_writer = "no handle";
  EXPECT_THAT(error_of(options), HasSubstr("not the handle of a queue"));
  options = {};
  options.listen = "nonsense";
  EXPECT_THAT(error_of(options), HasSubstr("nonsense"));
  options.listen = "nonsense \xFF";
  EXPECT_THAT(error_of(options), HasSubstr("nonsense ?"));
  options = {};
  options.advertise = "\xFF";
  EXPECT_THAT(error_of(options), HasSubstr("advertise"));
  options = {};
  options.failure = absl::InvalidArgumentError("blocks: expected an int");
  EXPECT_THAT(error_of(options), HasSubstr("blocks: expected an int"));
}

TEST(QueueOptionsTest, TooMuchMemoryIsSaidBeforeItIsTaken) {
  QueueOptions options;
  options.block_bytes = int64_t{1} << 34;
  options.blocks = 1;
  const absl::Status status = MessageQueue::CreateExternal("large", options).status();
  if (status.ok()) GTEST_SKIP() << "this machine has room for 16 GiB";
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("17179869184 bytes of memory are needed"));
}

}  // namespace
}  // namespace cohort::parallel
