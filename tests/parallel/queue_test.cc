// Message queues of groups of every form.
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/queue/message_queue.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using parallel::MessageQueue;
using parallel::QueueOptions;
using parallel::SingleReaderQueues;
using ::testing::AllOf;
using ::testing::HasSubstr;

// COHORT_TEST_SEED repeats a run.
uint64_t TestSeed() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

std::string Value(uint64_t seed, uint64_t i) {
  std::mt19937_64 random(seed + i * 7919);
  return std::string(random() % (i % 10 == 0 ? 300000 : 300), static_cast<char>(random()));
}

class QueueTest : public ParallelTest {
 protected:
  static QueueOptions Small() {
    QueueOptions options;
    options.blocks = 2;
    options.block_bytes = 32 << 10;
    return options;
  }
  void ExpectAll(const std::vector<absl::Status>& statuses, absl::StatusCode code,
                 const std::string& text) {
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      EXPECT_EQ(statuses[rank].code(), code) << "rank " << rank << ": " << statuses[rank];
      EXPECT_THAT(std::string(statuses[rank].message()), HasSubstr(text)) << "rank " << rank;
    }
  }
};

TEST_P(QueueTest, OneWritesAllRead) {
  constexpr uint64_t kValues = 60;
  for (const int size : {1, 2, 5, 8}) {
    MakeGroup(size);
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(absl::StrCat("size ", size, ", COHORT_TEST_SEED=", seed));
    ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
      QueueOptions options = Small();
      options.writer_rank = static_cast<int>(seed % static_cast<uint64_t>(size));
      absl::StatusOr<std::unique_ptr<MessageQueue>> queue = MessageQueue::Create(group, options);
      if (!queue.ok()) return queue.status();
      EXPECT_EQ((*queue)->is_writer(), group.rank() == options.writer_rank);
      for (uint64_t i = 0; i < kValues; ++i) {
        const std::string expected = Value(seed, i);
        absl::StatusOr<std::string> value =
            (*queue)->Broadcast((*queue)->is_writer() ? expected : "");
        if (!value.ok()) return value.status();
        if (*value != expected) return absl::DataLossError(absl::StrCat("value ", i));
      }
      if ((*queue)->is_writer()) {
        EXPECT_EQ((*queue)->readers().size(), static_cast<size_t>(size - 1));
        for (const parallel::QueueReader& reader : (*queue)->readers()) {
          EXPECT_EQ(reader.path, "shared memory") << reader.name;
        }
      }
      return absl::OkStatus();
    }));
  }
}

TEST_P(QueueTest, EachWritesOneReads) {
  constexpr uint64_t kValues = 20;
  for (const int size : {1, 3}) {
    MakeGroup(size);
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(absl::StrCat("size ", size, ", COHORT_TEST_SEED=", seed));
    const int reader = size - 1;
    ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
      absl::StatusOr<SingleReaderQueues> queues =
          parallel::CreateSingleReaderQueues(group, reader, Small());
      if (!queues.ok()) return queues.status();
      const auto own = static_cast<uint64_t>(group.rank());
      // The reader's own values wait in its ring until the reader takes them.
      for (uint64_t i = 1; i < kValues; ++i) {
        if (i % 10 == 0) continue;
        const absl::Status status = queues->own->Enqueue(Value(seed + own, i));
        if (!status.ok()) return status;
      }
      EXPECT_EQ(queues->all.size(), group.rank() == reader ? static_cast<size_t>(size) : 0U);
      for (size_t from = 0; from < queues->all.size(); ++from) {
        for (uint64_t i = 1; i < kValues; ++i) {
          if (i % 10 == 0) continue;
          absl::StatusOr<std::string> value = queues->all[from]->Dequeue();
          if (!value.ok()) return value.status();
          if (*value != Value(seed + from, i)) return absl::DataLossError("another value");
        }
      }
      return group.Barrier();
    }));
  }
}

TEST_P(QueueTest, OneRanksMistakeIsAnErrorOnAllRanks) {
  MakeGroup(3);
  const auto create = [&](const std::function<void(int, QueueOptions&)>& change) {
    return OnRanks([&](client::Group& group) {
      QueueOptions options = Small();
      change(group.rank(), options);
      return MessageQueue::Create(group, options).status();
    });
  };
  ExpectAll(
      create([](int rank, QueueOptions& options) { options.writer_rank = rank == 1 ? 3 : 0; }),
      absl::StatusCode::kInvalidArgument, "rank 1: writer_rank 3 is no rank");
  ExpectAll(create([](int rank, QueueOptions& options) { options.blocks = rank == 2 ? 0 : 2; }),
            absl::StatusCode::kInvalidArgument, "rank 2: block_bytes");
  ExpectAll(
      create([](int rank, QueueOptions& options) { options.writer_rank = rank == 2 ? 1 : 0; }),
      absl::StatusCode::kInvalidArgument, "rank 2 has rank 1 write one queue");
  ExpectAll(create([](int rank, QueueOptions& options) {
              if (rank == 2) options.max_value_bytes *= 2;
            }),
            absl::StatusCode::kInvalidArgument, "rank 2");
  ExpectAll(create([](int rank, QueueOptions& options) {
              if (rank == 0) options.listen = "192.0.2.1:0";
            }),
            absl::StatusCode::kUnavailable, "192.0.2.1");
  ExpectAll(OnRanks([&](client::Group& group) {
              if (group.rank() != 1) return MessageQueue::Create(group, Small()).status();
              return parallel::CreateSingleReaderQueues(group, 0, Small()).status();
            }),
            absl::StatusCode::kInvalidArgument, "rank 1 has rank 0 read a queue of each");
  // After the failures, the group still creates queues.
  ExpectOk(create([](int, QueueOptions&) {}));
}

TEST_P(QueueTest, AProcessOutsideWritesToAllRanks) {
  MakeGroup(3);
  auto writer = MessageQueue::CreateExternal("orders", Small());
  ASSERT_TRUE(writer.ok()) << writer.status();
  QueueOptions options;
  options.external_writer = (*writer)->handle();
  std::vector<std::unique_ptr<MessageQueue>> readers(3);
  ExpectOk(OnRanks([&](client::Group& group) {
    auto queue = MessageQueue::Create(group, options);
    if (queue.ok()) readers[static_cast<size_t>(group.rank())] = *std::move(queue);
    return queue.status();
  }));
  ASSERT_TRUE((*writer)->AwaitReaders(3).ok());
  ASSERT_TRUE((*writer)->Enqueue("march").ok());
  for (const auto& reader : readers) EXPECT_EQ(*reader->Dequeue(), "march");

  auto other = MessageQueue::CreateExternal("others", Small());
  ASSERT_TRUE(other.ok()) << other.status();
  ExpectAll(OnRanks([&](client::Group& group) {
              QueueOptions mine = options;
              if (group.rank() == 2) mine.external_writer = (*other)->handle();
              return MessageQueue::Create(group, mine).status();
            }),
            absl::StatusCode::kInvalidArgument, "handles of different queues");
}

INSTANTIATE_TEST_SUITE_P(Forms, QueueTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
