// Message queues whose ends are killed, stopped and left idle; each end is a process.
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr char kProgram[] = "tests/parallel/testing/queue_main";
constexpr int kForever = 100000000;

// COHORT_TEST_SEED repeats a run.
uint64_t TestSeed() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

enum class Transport { kMemory, kStream };

class QueueProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(coordinator_.Start().ok()); }

  ChildProcess& end(int rank) { return *ends_[static_cast<size_t>(rank)]; }
  std::string Line(int rank) {
    absl::StatusOr<std::string> line = end(rank).ReadLine(kTimeout);
    return line.ok() ? *line : absl::StrCat("no line: ", line.status().ToString());
  }
  void SendCommand(int rank, const std::string& command, int first, int count, int most,
                   int timeout_ms = 60000) {
    end(rank).WriteLine(
        absl::StrCat(command, " ", first, " ", count, " ", seed_, " ", most, " ", timeout_ms));
  }
  std::string Ask(int rank, const std::string& command) {
    end(rank).WriteLine(command);
    return Line(rank);
  }

  const uint64_t seed_ = TestSeed();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("COHORT_TEST_SEED=", seed_)};
  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::vector<std::unique_ptr<ChildProcess>> ends_;
};

class QueueTransportsTest : public QueueProcessTest,
                            public ::testing::WithParamInterface<Transport> {
 protected:
  bool streams() const { return GetParam() == Transport::kStream; }

  // Rank 0 writes; for streams, it is on another host than the rest.
  void MakeQueue(int size) {
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::string> command = {
          kProgram,          "rank", coordinator_.address(), "queue", absl::StrCat(rank),
          absl::StrCat(size)};
      if (streams()) command.push_back(absl::StrCat("host=", rank == 0 ? "here" : "there"));
      ends_.push_back(std::make_unique<ChildProcess>(std::move(command)));
    }
    EXPECT_EQ(Line(0), "made self");
    for (int rank = 1; rank < size; ++rank) {
      EXPECT_THAT(Line(rank),
                  StartsWith(streams() ? "made stream 127.0.0.1:" : "made shared memory"));
    }
  }
};

TEST_P(QueueTransportsTest, AFloodOfAllSizesArrives) {
  MakeQueue(3);
  for (int rank = 1; rank < 3; ++rank) SendCommand(rank, "read", 0, 3020, 0);
  SendCommand(0, "write", 0, 3020, 0);
  for (int rank = 1; rank < 3; ++rank) EXPECT_EQ(Line(rank), "running");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "3020 OK ");
  // Values of up to ten times the size of the ring.
  for (int rank = 1; rank < 3; ++rank) SendCommand(rank, "read", 0, 40, 10 << 20);
  SendCommand(0, "write", 0, 40, 10 << 20);
  for (int rank = 1; rank < 3; ++rank) EXPECT_EQ(Line(rank), "running");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "40 OK ");
}

TEST_P(QueueTransportsTest, ADeadReaderIsNotWaitedFor) {
  MakeQueue(3);
  SendCommand(0, "write", 0, 2000, 100000);
  SendCommand(1, "read", 0, 2000, 100000);
  SendCommand(2, "read", 0, kForever, 100000);
  EXPECT_EQ(Line(2), "running");
  end(2).Kill();
  EXPECT_EQ(Line(0), "2000 OK ");
  EXPECT_EQ(Line(1), "running");
  EXPECT_EQ(Line(1), "2000 OK ");
  EXPECT_THAT(Ask(0, "departures"), StartsWith("rank 2: its process is gone"));
  end(1).Kill();
  SendCommand(0, "write", 0, kForever, 100000);
  EXPECT_THAT(
      Line(0),
      AllOf(HasSubstr(" ABORTED the queue of rank 0 in group \"queue\": all readers are gone"),
            HasSubstr("rank 1 (its process is gone"), HasSubstr("rank 2 (its")));
}

TEST_P(QueueTransportsTest, ADeadWriterIsNamedAfterItsValues) {
  MakeQueue(3);
  SendCommand(0, "write", 0, kForever, 100000);
  for (int rank = 1; rank < 3; ++rank) SendCommand(rank, "read", 0, kForever, 100000);
  for (int rank = 1; rank < 3; ++rank) EXPECT_EQ(Line(rank), "running");
  end(0).Kill();
  std::vector<std::string> counts;
  for (int rank = 1; rank < 3; ++rank) {
    const std::string line = Line(rank);
    EXPECT_THAT(line, AllOf(HasSubstr(" ABORTED "), HasSubstr("rank 0, who writes it, is gone")));
    counts.push_back(line.substr(0, line.find(' ')));
  }
  // All readers get the values in shared memory; by streams, each gets the values that were sent to
  // it.
  if (!streams()) {
    EXPECT_EQ(counts[0], counts[1]);
  }
}

// A child of the dead process keeps its connection open. Streams notice that the child does not
// answer.
TEST_F(QueueProcessTest, ADeadProcessWithAChildIsDead) {
  ChildProcess writer({kProgram, "external", "orders"});
  ASSERT_EQ(*writer.ReadLine(kTimeout), "made self");
  writer.WriteLine("handle");
  const std::string handle = *writer.ReadLine(kTimeout);
  for (const char* name : {"first", "second"}) {
    ends_.push_back(
        std::make_unique<ChildProcess>(std::vector<std::string>{kProgram, "open", handle, name}));
    EXPECT_EQ(Line(static_cast<int>(ends_.size()) - 1), "made shared memory");
  }
  EXPECT_EQ(Ask(1, "fork"), "OK ");
  end(1).Kill();
  SendCommand(0, "read", 0, kForever, 100000);
  writer.WriteLine(absl::StrCat("write 0 500 ", seed_, " 100000 60000"));
  EXPECT_EQ(*writer.ReadLine(kTimeout), "500 OK ");
  writer.WriteLine("departures");
  EXPECT_EQ(*writer.ReadLine(kTimeout), "second: its process is gone; ");
  EXPECT_EQ(Line(0), "running");

  writer.WriteLine("fork");
  EXPECT_EQ(*writer.ReadLine(kTimeout), "OK ");
  writer.Kill();
  EXPECT_THAT(Line(0), AllOf(StartsWith("500 ABORTED "),
                             HasSubstr("the writer of \"orders\", who writes it, is gone")));
  // The writer no longer listens, and a new reader gets that error at once.
  ChildProcess late({kProgram, "open", handle, "late"});
  EXPECT_THAT(*late.ReadLine(kTimeout),
              AllOf(StartsWith("failed UNAVAILABLE "), HasSubstr("the writer's process is gone")));
}

TEST_P(QueueTransportsTest, AStoppedReaderHoldsTheWriterBackAndIsNamed) {
  MakeQueue(3);
  end(2).Signal(SIGSTOP);
  SendCommand(0, "write", 0, kForever, 50000, 300);
  SendCommand(1, "read", 0, kForever, 50000, 300);
  const std::string stopped = Line(0);
  EXPECT_THAT(stopped, AllOf(HasSubstr(" DEADLINE_EXCEEDED "), HasSubstr("rank 2 is "),
                             ::testing::Not(HasSubstr("rank 1 is "))));
  EXPECT_EQ(Line(1), "running");
  const std::string read = Line(1);
  EXPECT_THAT(read, HasSubstr(" DEADLINE_EXCEEDED "));
  int written = 0;
  ASSERT_TRUE(absl::SimpleAtoi(stopped.substr(0, stopped.find(' ')), &written));
  EXPECT_EQ(read.substr(0, read.find(' ')), absl::StrCat(written));
  // The stopped reader goes on, and loses no value.
  end(2).Signal(SIGCONT);
  SendCommand(2, "read", 0, written + 100, 50000);
  SendCommand(1, "read", written, 100, 50000);
  SendCommand(0, "write", written, 100, 50000);
  EXPECT_EQ(Line(2), "running");
  EXPECT_EQ(Line(1), "running");
  EXPECT_EQ(Line(0), "100 OK ");
  EXPECT_EQ(Line(1), "100 OK ");
  EXPECT_EQ(Line(2), absl::StrCat(written + 100, " OK "));
}

TEST_P(QueueTransportsTest, AWaitingReaderUsesNoProcessor) {
  MakeQueue(3);
  const auto expect_idle = [&](int rank) {
    const std::string line = Line(rank);
    EXPECT_THAT(line, HasSubstr("DEADLINE_EXCEEDED"));
    int ms = 0;
    ASSERT_TRUE(absl::SimpleAtoi(line.substr(0, line.find(' ')), &ms)) << line;
    EXPECT_LT(ms, 100) << "rank " << rank;
  };
  for (int rank = 1; rank < 3; ++rank) end(rank).WriteLine("idle 1000");
  for (int rank = 1; rank < 3; ++rank) expect_idle(rank);
  // A writer in front of a full ring.
  EXPECT_THAT(Ask(0, "idle 1000"), HasSubstr("DEADLINE_EXCEEDED"));
  end(0).WriteLine("idle 1000");
  expect_idle(0);
}

TEST_P(QueueTransportsTest, AProcessOutsideOfTheGroupWritesAndOthersRead) {
  ChildProcess writer({kProgram, "external", "orders", "listen=127.0.0.1:0"});
  ASSERT_EQ(*writer.ReadLine(kTimeout), "made self");
  writer.WriteLine("handle");
  const std::string handle = *writer.ReadLine(kTimeout);
  for (int rank = 0; rank < 2; ++rank) {
    ends_.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{kProgram, "rank", coordinator_.address(), "queue",
                                 absl::StrCat(rank), "2", absl::StrCat("external=", handle)}));
  }
  ends_.push_back(std::make_unique<ChildProcess>(
      std::vector<std::string>{kProgram, "open", handle, "a visitor"}));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "made shared memory");
  writer.WriteLine("readers 3");
  EXPECT_EQ(*writer.ReadLine(kTimeout), "OK ");
  for (int rank = 0; rank < 3; ++rank) SendCommand(rank, "read", 0, 50, 2 << 20);
  writer.WriteLine(absl::StrCat("write 0 50 ", seed_, " ", 2 << 20, " 60000"));
  EXPECT_EQ(*writer.ReadLine(kTimeout), "50 OK ");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "running");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "50 OK ");
  end(2).Kill();
  writer.WriteLine("shutdown the war is over");
  EXPECT_EQ(*writer.ReadLine(kTimeout), "OK ");
  for (int rank = 0; rank < 2; ++rank) {
    SendCommand(rank, "read", 50, 1, 100);
    EXPECT_THAT(Line(rank), AllOf(StartsWith("0 CANCELLED "), HasSubstr("the war is over")));
  }
}

// All ranks know that it is on the writer's host, but the memory does not fit into its addresses.
TEST_F(QueueProcessTest, AReaderThatCannotMapTheMemoryReadsAStream) {
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<std::string> command = {
        kProgram,           "rank", coordinator_.address(),         "queue",
        absl::StrCat(rank), "3",    absl::StrCat("bytes=", 1 << 30)};
    if (rank == 2) command.push_back("spare_mib=1024");
    ends_.push_back(std::make_unique<ChildProcess>(std::move(command)));
  }
  EXPECT_EQ(Line(0), "made self");
  EXPECT_EQ(Line(1), "made shared memory");
  EXPECT_THAT(Line(2), StartsWith("made stream "));
  for (int rank = 1; rank < 3; ++rank) SendCommand(rank, "read", 0, 20, 1 << 20);
  SendCommand(0, "write", 0, 20, 1 << 20);
  for (int rank = 1; rank < 3; ++rank) EXPECT_EQ(Line(rank), "running");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Line(rank), "20 OK ");
}

INSTANTIATE_TEST_SUITE_P(Transports, QueueTransportsTest,
                         ::testing::Values(Transport::kMemory, Transport::kStream),
                         [](const auto& info) {
                           return info.param == Transport::kMemory ? "Memory" : "Stream";
                         });

}  // namespace
}  // namespace cohort::testing
