// The ring between threads, each in the role of a process.
//
// One file, though long: its cases share one fixture.
#include <unistd.h>

#include <atomic>
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
#include "client/parallel/queue/ring/record_reader.h"
#include "client/parallel/queue/ring/ring_source.h"
#include "client/parallel/queue/ring/ring_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMost = 64 << 20;

WaitLimit For(absl::Duration duration) { return {Clock::Steady().Now() + duration}; }
WaitLimit Long() { return For(absl::Seconds(60)); }
WaitLimit Short() { return For(absl::Milliseconds(20)); }

class PlainSlot final : public ReaderSlot {
 public:
  PlainSlot(std::string name, std::shared_ptr<PageMemory> page)
      : ReaderSlot(std::move(name), "here"), page_(std::move(page)) {}
  ReaderPage& page() override { return page_->page(); }
  void Admitted() override { admitted_ = true; }
  void Wake() override {
    page().reader_sleeps.store(0, std::memory_order_relaxed);
    WakeReader(page());
  }
  void Left(absl::string_view) override {}
  bool admitted() const { return admitted_; }

 private:
  const std::shared_ptr<PageMemory> page_;
  std::atomic<bool> admitted_{false};
};

class RingTest : public ::testing::Test {
 protected:
  struct Reader {
    std::shared_ptr<PageMemory> page;
    std::shared_ptr<PlainSlot> slot;
    std::unique_ptr<RingSource> source;
    std::unique_ptr<RecordReader> records;
  };

  void Make(int64_t bytes, int readers) {
    ring_ = *RingMemory::Create(bytes);
    writer_ = std::make_unique<RingWriter>(ring_, readers == 0);
    for (int i = 0; i < readers; ++i) readers_.push_back(NewReader());
  }
  Reader NewReader() {
    Reader reader;
    reader.page = *PageMemory::Create();
    reader.slot = std::make_shared<PlainSlot>(absl::StrCat("rank ", ++names_), reader.page);
    writer_->Admit(reader.slot);
    reader.source = std::make_unique<RingSource>(ring_, reader.page, "rank 0");
    reader.records = std::make_unique<RecordReader>(*reader.source, kMost);
    return reader;
  }
  RecordReader& records(size_t i) { return *readers_[i].records; }

  std::shared_ptr<RingMemory> ring_;
  std::unique_ptr<RingWriter> writer_;
  std::vector<Reader> readers_;
  int names_ = 0;
};

// COHORT_TEST_SEED repeats a run.
uint64_t TestSeed() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

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

TEST_F(RingTest, LiesTwiceInARow) {
  Make(5000, 0);
  EXPECT_EQ(ring_->capacity(), 8192U);
  std::memset(ring_->At(8000), 7, 1000);
  EXPECT_EQ(ring_->At(0)[807], 7);
  EXPECT_EQ(ring_->At(0)[808], 0);
}

TEST_F(RingTest, AReadersMappingIsReadOnly) {
  Make(4096, 0);
  absl::StatusOr<std::shared_ptr<RingMemory>> mapped =
      RingMemory::Map(UniqueFd(dup(ring_->fd())), 4096);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  *ring_->At(5) = 9;
  EXPECT_EQ(*(*mapped)->At(5), 9);
  EXPECT_EQ(RingMemory::Map(UniqueFd(dup(ring_->fd())), 8192).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_DEATH(*(*mapped)->At(5) = 1, "");
}

TEST_F(RingTest, ValuesOfAllSizesComeInOrder) {
  for (const int64_t capacity : {4096, 65536}) {
    readers_.clear();
    Make(capacity, 3);
    const uint64_t seed = TestSeed();
    SCOPED_TRACE(absl::StrCat("COHORT_TEST_SEED=", seed));
    constexpr int kValues = 400;
    const auto size_of = [seed, capacity](int i) {
      std::mt19937_64 random(seed + static_cast<uint64_t>(i));
      const auto most = static_cast<uint64_t>(capacity) * (i % 20 == 0 ? 5 : 1);
      return static_cast<size_t>(random() % (i % 3 == 0 ? most : 200));
    };
    std::vector<std::thread> threads;
    for (size_t reader = 0; reader < 3; ++reader) {
      threads.emplace_back([&, reader] {
        for (int i = 0; i < kValues; ++i) {
          const std::string expected = Value(seed ^ static_cast<uint64_t>(i), size_of(i));
          if ((static_cast<size_t>(i) + reader) % 2 == 0) {
            const absl::StatusOr<std::string> value = records(reader).Next(Long());
            ASSERT_TRUE(value.ok()) << value.status();
            ASSERT_TRUE(*value == expected) << i;
          } else {
            const absl::Status status = records(reader).View(
                [&](absl::string_view value) {
                  EXPECT_TRUE(value == expected) << i;
                  return absl::OkStatus();
                },
                Long());
            ASSERT_TRUE(status.ok()) << status;
          }
        }
      });
    }
    for (int i = 0; i < kValues; ++i) {
      const absl::Status status =
          writer_->Write(Value(seed ^ static_cast<uint64_t>(i), size_of(i)), Long());
      EXPECT_TRUE(status.ok()) << status;
    }
    for (std::thread& thread : threads) thread.join();
    for (const QueueReader& reader : writer_->readers()) {
      EXPECT_EQ(reader.bytes_behind, 0U) << reader.name;
      EXPECT_EQ(reader.values_behind, 0U) << reader.name;
    }
  }
}

TEST_F(RingTest, PromptReadersKeepTheWriterAtTheStartOfTheRing) {
  constexpr uint64_t kRing = 1 << 20;
  Make(kRing, 2);
  for (int i = 0; i < 5000; ++i) {
    const std::string value(1000, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(writer_->Write(value, Short()).ok());
    for (size_t reader = 0; reader < 2; ++reader) {
      ASSERT_EQ(*records(reader).Next(Short()), value) << i;
    }
  }
  const absl::string_view rest(ring_->At(kRing / 2), kRing / 2);
  EXPECT_EQ(rest.find_first_not_of('\0'), absl::string_view::npos);
  // A reader that lags still has the whole ring as room, from any position.
  int written = 0;
  while (writer_->Write(Value(static_cast<uint64_t>(written), 1000), Short()).ok()) ++written;
  EXPECT_EQ(written, static_cast<int>(kRing / 1024));
  for (int i = 0; i < written; ++i) {
    for (size_t reader = 0; reader < 2; ++reader) {
      ASSERT_EQ(*records(reader).Next(Short()), Value(static_cast<uint64_t>(i), 1000)) << i;
    }
  }
}

TEST_F(RingTest, NamesALaggingReader) {
  Make(4096, 2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(writer_->Write(std::string(1000, 'x'), Short()).ok());
  ASSERT_TRUE(records(0).Next(Short()).ok());
  const absl::Status full = writer_->Write(std::string(2000, 'y'), Short());
  EXPECT_EQ(full.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(full.message()),
              AllOf(HasSubstr("rank 2 is 3072 bytes (3 values) behind"),
                    ::testing::Not(HasSubstr("rank 1"))));
  // The failed value does not block later ones.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*records(1).Next(Short()), std::string(1000, 'x'));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*records(0).Next(Short()), std::string(1000, 'x'));
  ASSERT_TRUE(writer_->Write("z", Short()).ok());
  EXPECT_EQ(*records(0).Next(Short()), "z");
  EXPECT_EQ(*records(1).Next(Short()), "z");
}

// The second one finds no room at all.
TEST_F(RingTest, UnfinishedValuesAreNotRead) {
  Make(4096, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(writer_->Write(std::string(20000, 'x'), Short()).code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  const absl::StatusOr<std::string> half = records(0).Next(Short());
  EXPECT_EQ(half.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(writer_->Write(std::string(20000, 'y'), Short()).code(),
            absl::StatusCode::kDeadlineExceeded)
      << "the ring has room for its beginning";
  EXPECT_EQ(records(0).Next(Short()).status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(writer_->Write("whole", Short()).ok());
  const absl::StatusOr<std::string> whole = records(0).Next(Short());
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(*whole, "whole");
}

TEST_F(RingTest, AReaderThatComesLaterReadsFromThereOn) {
  Make(4096, 1);
  ASSERT_TRUE(writer_->Write("before", Short()).ok());
  readers_.push_back(NewReader());
  ASSERT_EQ(writer_->readers().size(), 2u);
  EXPECT_EQ(writer_->readers()[0].values_behind, 1u);
  EXPECT_EQ(writer_->readers()[1].values_behind, 0u) << "it does not lag: it has just come";
  ASSERT_TRUE(writer_->Write("behind", Short()).ok());
  EXPECT_EQ(*records(0).Next(Short()), "before");
  EXPECT_EQ(*records(1).Next(Short()), "behind");
}

TEST_F(RingTest, AReaderThatComesWhileTheWriterWaitsIsAdmittedAfterwards) {
  Make(4096, 1);
  std::thread writing([&] {
    EXPECT_TRUE(writer_->Write(std::string(20000, 'x'), Long()).ok());
    EXPECT_TRUE(writer_->Write("behind", Long()).ok());
  });
  while (readers_[0].page->page().awaited_head.load() == kNobody) std::this_thread::yield();
  auto page = *PageMemory::Create();
  auto slot = std::make_shared<PlainSlot>("late", page);
  writer_->Admit(slot);
  EXPECT_EQ(records(0).Next(Long())->size(), 20000U);
  EXPECT_EQ(*records(0).Next(Long()), "behind");
  writing.join();
  EXPECT_TRUE(slot->admitted());
  writer_->Leave(*slot, "enough");
}

TEST_F(RingTest, TheWriterGoesOnWithoutAReaderThatLeft) {
  Make(4096, 2);
  std::thread leaving([&] {
    // The writer waits for both readers.
    while (readers_[0].page->page().awaited_head.load() == kNobody &&
           readers_[1].page->page().awaited_head.load() == kNobody) {
      std::this_thread::yield();
    }
    writer_->Leave(*readers_[1].slot, "its process is gone");
    EXPECT_EQ(records(0).Next(Long())->size(), 20000U);
  });
  const absl::Status status = writer_->Write(std::string(20000, 'x'), Long());
  EXPECT_TRUE(status.ok()) << status;
  leaving.join();
  const std::vector<QueueDeparture> left = writer_->departures();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].name, "rank 2");
  EXPECT_EQ(left[0].why, "its process is gone");
  EXPECT_EQ(writer_->readers().size(), 1U);
}

TEST_F(RingTest, WithTheLastReaderItEnds) {
  Make(4096, 1);
  writer_->Leave(*readers_[0].slot, "its process is gone");
  const absl::Status status = writer_->Write("x", Short());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (its process is gone)"));
}

// Leaves as soon as it has a value.
class LeavingSlot final : public ReaderSlot {
 public:
  explicit LeavingSlot(RingWriter& writer) : ReaderSlot("rank 1", "here"), writer_(writer) {}
  ReaderPage& page() override { return page_->page(); }
  void Admitted() override { page().reader_sleeps.store(1, std::memory_order_seq_cst); }
  void Wake() override { writer_.Leave(*this, "it has read all"); }
  void Left(absl::string_view) override {}

 private:
  RingWriter& writer_;
  const std::shared_ptr<PageMemory> page_ = *PageMemory::Create();
};

// No error says that a value was not written which the reader has.
TEST_F(RingTest, AReaderMayLeaveWithTheLastValue) {
  RingWriter writer(*RingMemory::Create(8192), /*alone=*/false);
  writer.Admit(std::make_shared<LeavingSlot>(writer));
  const absl::Status last = writer.Write("last", Long());
  EXPECT_TRUE(last.ok()) << last;
  EXPECT_THAT(std::string(writer.Write("more", Long()).message()),
              HasSubstr("all readers are gone: rank 1 (it has read all)"));
}

TEST_F(RingTest, AHeadThatCannotBeIsNotBelieved) {
  Make(4096, 2);
  ASSERT_TRUE(writer_->Write("x", Short()).ok());
  readers_[0].page->page().head.store(uint64_t{1} << 40);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(records(1).Next(Short()).ok());
    ASSERT_TRUE(writer_->Write(std::string(1500, 'x'), Short()).ok());
  }
  ASSERT_EQ(writer_->departures().size(), 1U);
  EXPECT_THAT(writer_->departures()[0].why, HasSubstr("claims to have read"));
}

TEST_F(RingTest, TheEndComesAfterAllValues) {
  Make(4096, 1);
  ASSERT_TRUE(writer_->Write("last", Short()).ok());
  std::thread ending([&] { writer_->End("the epoch is over"); });
  EXPECT_EQ(*records(0).Next(Long()), "last");
  const absl::StatusOr<std::string> end = records(0).Next(Long());
  EXPECT_EQ(end.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(end.status().message()),
              HasSubstr("rank 0 shut it down: the epoch is over"));
  ending.join();
  EXPECT_EQ(writer_->Write("more", Short()).code(), absl::StatusCode::kCancelled);
}

TEST_F(RingTest, TheEndWakesAWriterThatWaits) {
  Make(4096, 1);
  std::thread ending([&] {
    while (readers_[0].page->page().awaited_head.load() == kNobody) std::this_thread::yield();
    writer_->End("enough");
  });
  EXPECT_EQ(writer_->Write(std::string(20000, 'x'), Long()).code(), absl::StatusCode::kCancelled);
  ending.join();
  EXPECT_EQ(records(0).Next(Long()).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(RingTest, ValuesOfADeadWriterCanBeRead) {
  Make(4096, 1);
  ASSERT_TRUE(writer_->Write("left", Short()).ok());
  readers_[0].source->WriterGone("its process has ended");
  EXPECT_EQ(*records(0).Next(Long()), "left");
  const absl::Status gone = records(0).Next(Long()).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("rank 0"));
}

TEST_F(RingTest, AReaderThatWasStoppedReadsNoValueThatIsLeft) {
  Make(4096, 1);
  ASSERT_TRUE(writer_->Write("left", Short()).ok());
  readers_[0].source->Stop(absl::CancelledError("closed"));
  EXPECT_EQ(records(0).Next(Long()).status(), absl::CancelledError("closed"));
  EXPECT_EQ(records(0).View([](absl::string_view) { return absl::OkStatus(); }, Long()),
            absl::CancelledError("closed"));
}

TEST_F(RingTest, AReaderThatDoesNotWaitGetsTheReasonNotTheDeadline) {
  const WaitLimit passed = For(-absl::Seconds(1));
  Make(4096, 3);
  EXPECT_TRUE(absl::IsDeadlineExceeded(records(0).Next(passed).status()));
  readers_[0].source->WriterGone("its process has ended");
  EXPECT_TRUE(absl::IsAborted(records(0).Next(passed).status()));
  client::Cancellation cancellation;
  cancellation.Cancel(absl::CancelledError("never mind"));
  const WaitLimit cancelled(-absl::Seconds(1), &cancellation);
  EXPECT_EQ(records(1).Next(cancelled).status(), absl::CancelledError("never mind"));
  writer_->End("all is read");
  const absl::Status ended = records(2).Next(passed).status();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("all is read"));
}

// A sleeping reader gets each of these at once, not only at its next look.
TEST_F(RingTest, AnEndWakesAReaderThatSleeps) {
  Make(4096, 1);
  const ReaderPage& page = readers_[0].page->page();
  uint32_t before = page.reader_event.load();
  readers_[0].source->WriterGone("its process has ended");
  EXPECT_NE(page.reader_event.load(), before) << "WriterGone";
  before = page.reader_event.load();
  readers_[0].source->Stop(absl::CancelledError("closed"));
  EXPECT_NE(page.reader_event.load(), before) << "Stop";
}

// A lost wake-up costs a fraction of a second, not the whole timeout.
TEST_F(RingTest, SleepersLookAgainThoughTheirWakeUpWasLost) {
  Make(4096, 1);
  ReaderPage& page = readers_[0].page->page();
  std::thread reader([&] {
    while (page.reader_sleeps.load() == 0) std::this_thread::yield();
    page.reader_sleeps.store(0);  // The writer no longer sees that this reader sleeps.
    EXPECT_TRUE(writer_->Write("one", Long()).ok());
  });
  Instant begin = Clock::Steady().Now();
  EXPECT_EQ(records(0).Next(Long()).value_or(""), "one");
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(30)) << "the reader slept on";
  reader.join();

  // The writer waits for room until the reader has taken the first of two large values.
  ASSERT_TRUE(writer_->Write(std::string(2000, 'a'), Long()).ok());
  ASSERT_TRUE(writer_->Write(std::string(2000, 'b'), Long()).ok());
  std::thread second_reader([&] {
    while (page.awaited_head.load() == kNobody) std::this_thread::yield();
    page.awaited_head.store(kNobody);  // The reader no longer sees that the writer waits.
    EXPECT_EQ(records(0).Next(Long()).value_or("").size(), 2000u);
  });
  begin = Clock::Steady().Now();
  EXPECT_TRUE(writer_->Write(std::string(2000, 'c'), Long()).ok());
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(30)) << "the writer slept on";
  second_reader.join();
}

TEST_F(RingTest, CancellationsEndBothSides) {
  Make(4096, 1);
  client::Cancellation cancellation;
  const WaitLimit limit(absl::Minutes(1), &cancellation);
  std::thread cancelling([&] {
    while (readers_[0].page->page().reader_sleeps.load() == 0) std::this_thread::yield();
    cancellation.Cancel(absl::CancelledError("never mind"));
  });
  EXPECT_EQ(records(0).Next(limit).status().message(), "never mind");
  cancelling.join();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(writer_->Write(std::string(2000, 'x'), limit).ok());
  EXPECT_EQ(writer_->Write(std::string(2000, 'x'), limit).message(), "never mind");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(records(0).Next(Short()).ok());
  ASSERT_TRUE(writer_->Write("after", Short()).ok());
  EXPECT_EQ(*records(0).Next(Short()), "after");
}

TEST_F(RingTest, AViewIsReadHoweverItEnds) {
  Make(4096, 1);
  for (const char* value : {"one", "two", "three"}) {
    ASSERT_TRUE(writer_->Write(value, Short()).ok());
  }
  EXPECT_EQ(
      records(0).View([](absl::string_view) { return absl::DataLossError("bad"); }, Short()).code(),
      absl::StatusCode::kDataLoss);
  EXPECT_THROW(
      (void)records(0).View(
          [](absl::string_view) -> absl::Status { throw std::runtime_error("worse"); }, Short()),
      std::runtime_error);
  EXPECT_EQ(*records(0).Next(Short()), "three");
  EXPECT_EQ(writer_->readers()[0].bytes_behind, 0U);
}

TEST_F(RingTest, NonsenseIsNotRead) {
  Make(4096, 1);
  ASSERT_TRUE(writer_->Write("fine", Short()).ok());
  RecordHeader nonsense = {uint64_t{1} << 60, 64, RecordHeader::kFirst};
  std::memcpy(ring_->At(0), &nonsense, sizeof(nonsense));
  EXPECT_EQ(records(0).Next(Short()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cohort::parallel
