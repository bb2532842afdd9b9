// Readers of the same host: they come, leave, and are refused.
#include "client/parallel/queue/connections/local_reader.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/shm/local_socket.h"
#include "base/unique_fd.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/connections/local_acceptor.h"
#include "client/parallel/queue/ring/record_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRing = 64 << 10;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

class LocalTest : public ::testing::Test {
 protected:
  LocalTest() {
    handle_.set_version(kQueueVersion);
    handle_.set_writer("rank 0");
    handle_.set_token(NewToken());
    handle_.set_capacity_bytes(kRing);
    handle_.set_max_value_bytes(1 << 20);
    writer_ = std::make_shared<RingWriter>(*RingMemory::Create(kRing), true);
    acceptor_ = *LocalAcceptor::Open(writer_, handle_);
    handle_.set_local(acceptor_->name());
  }
  std::unique_ptr<ByteSource> Open(const std::string& name) {
    absl::StatusOr<std::unique_ptr<ByteSource>> source = OpenLocalReader(handle_, name, Soon());
    EXPECT_TRUE(source.ok()) << source.status();
    return source.ok() ? *std::move(source) : nullptr;
  }

  std::string Hello() const {
    v1::QueueLocalStep step;
    *step.mutable_hello() = HelloTo(handle_, "a reader");
    return step.SerializeAsString();
  }

  v1::QueueHandle handle_;
  std::shared_ptr<RingWriter> writer_;
  std::unique_ptr<LocalAcceptor> acceptor_;
};

TEST_F(LocalTest, ReadersComeAndGoWhileItIsWritten) {
  std::atomic<bool> over{false};
  std::thread writing([&] {
    for (int i = 0; !over.load(); ++i) {
      const absl::Status status = writer_->Write(
          std::string(static_cast<size_t>(i % 5000), static_cast<char>(i % 5000)), {Soon()});
      ASSERT_TRUE(status.ok()) << status;
    }
  });
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      for (int round = 0; round < 10; ++round) {
        const auto source = Open(absl::StrCat("reader ", reader));
        ASSERT_NE(source, nullptr);
        RecordReader records(*source, 1 << 20);
        size_t last = 0;
        for (int i = 0; i < 10 * round; ++i) {
          const absl::StatusOr<std::string> value = records.Next({Soon()});
          ASSERT_TRUE(value.ok()) << value.status();
          ASSERT_EQ(*value, std::string(value->size(), static_cast<char>(value->size())));
          if (i > 0) {
            ASSERT_EQ(value->size(), (last + 1) % 5000);
          }
          last = value->size();
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  over.store(true);
  writing.join();
  EXPECT_TRUE(writer_->AwaitChange([&] { return writer_->readers().empty(); }, {Soon()}));
  EXPECT_EQ(writer_->departures().size(), 30U);
}

// A thread of this process is in another network namespace.
TEST_F(LocalTest, AReaderOfAnotherNetworkNamespaceComesThroughTheFolder) {
  char folder[] = "/tmp/host-folder-XXXXXX";  // a socket's path is short
  ASSERT_NE(mkdtemp(folder), nullptr);
  setenv("COHORT_HOST_FOLDER", folder, 1);
  acceptor_ = *LocalAcceptor::Open(writer_, handle_);
  handle_.set_local(acceptor_->name());
  absl::StatusOr<std::unique_ptr<ByteSource>> without, with;
  bool is_elsewhere = false;
  std::thread other([&] {
    is_elsewhere = unshare(CLONE_NEWNET) == 0;
    without = OpenLocalReader(handle_, "a reader", Soon());
    handle_.set_local_folder(acceptor_->folder());
    with = OpenLocalReader(handle_, "a reader", Soon());
  });
  other.join();
  unsetenv("COHORT_HOST_FOLDER");
  acceptor_.reset();
  EXPECT_EQ(rmdir(folder), 0);
  if (!is_elsewhere) GTEST_SKIP() << "needs the right to make network namespaces";
  EXPECT_EQ(without.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(with.ok()) << with.status();
}

TEST_F(LocalTest, ClosingTheAcceptorEndsItsReaders) {
  const auto source = Open("a reader");
  RecordReader records(*source, 1 << 20);
  ASSERT_TRUE(writer_->Write("last", {Soon()}).ok());
  acceptor_ = nullptr;
  writer_ = nullptr;
  EXPECT_EQ(*records.Next({Soon()}), "last");
  const absl::Status gone = records.Next({Soon()}).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("rank 0, who writes it, is gone"));
  EXPECT_EQ(OpenLocalReader(handle_, "late", Soon()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(LocalTest, UnidentifiedConnectionsDoNotKeepReadersOut) {
  std::vector<shm::LocalSocket> unidentified;
  for (int i = 0; i < 150; ++i) {
    absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(handle_.local(), Soon());
    ASSERT_TRUE(socket.ok()) << socket.status();
    if (i % 3 == 0) socket->Send("nonsense", {}, Soon()).IgnoreError();
    unidentified.push_back(*std::move(socket));
  }
  const auto source = Open("a reader");
  RecordReader records(*source, 1 << 20);
  ASSERT_TRUE(writer_->Write("for readers", {Soon()}).ok());
  EXPECT_EQ(*records.Next({Soon()}), "for readers");
  EXPECT_EQ(writer_->readers().size(), 1U);
}

// Each holds a descriptor of the writer: if there are more than 64, the oldest is closed.
TEST_F(LocalTest, TheOldestOfTooManyUnidentifiedConnectionsIsClosed) {
  std::vector<shm::LocalSocket> unidentified;
  for (int i = 0; i < 65; ++i) {
    absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(handle_.local(), Soon());
    ASSERT_TRUE(socket.ok()) << socket.status();
    unidentified.push_back(*std::move(socket));
  }
  EXPECT_EQ(unidentified.front().Receive(Soon()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(unidentified.back().Receive(absl::InfinitePast()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LocalTest, AReaderThatWasRemovedGetsTheReason) {
  const auto source = Open("a reader");
  RecordReader records(*source, 1 << 20);
  ASSERT_TRUE(writer_->Write("never read", {Soon()}).ok());
  // Like a reader with a broken position.
  source->Release(uint64_t{1} << 40, 1);
  ASSERT_TRUE(writer_->Write(std::string(40000, 'x'), {Soon()}).ok());
  ASSERT_TRUE(writer_->Write(std::string(40000, 'x'), {Soon()}).ok());
  ASSERT_EQ(writer_->departures().size(), 1U);
  const absl::Status out = records.Next({Soon()}).status();
  EXPECT_EQ(out.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(out.message()),
              HasSubstr("rank 0, who writes it, let this reader go: it claims to have read"));
}

// A reader that comes while the acceptor closes is either let in and disconnected, or never let in.
TEST_F(LocalTest, NoReaderStaysConnectedToAClosedAcceptor) {
  for (int round = 0; round < 300; ++round) {
    auto acceptor = *LocalAcceptor::Open(writer_, handle_);
    const std::string name = acceptor->name();
    std::vector<shm::LocalSocket> sockets(8);
    std::thread coming([&] {
      for (shm::LocalSocket& socket : sockets) {
        absl::StatusOr<shm::LocalSocket> came = shm::LocalSocket::Connect(name, Soon());
        if (came.ok()) socket = *std::move(came);
      }
    });
    if (round % 2 == 0) std::this_thread::yield();
    acceptor = nullptr;
    coming.join();
    for (const shm::LocalSocket& socket : sockets) {
      if (socket.fd() < 0) continue;
      const absl::Status gone = socket.Receive(Clock::Steady().Now() + absl::Seconds(10)).status();
      ASSERT_EQ(gone.code(), absl::StatusCode::kUnavailable) << "round " << round << ": " << gone;
    }
  }
}

// The file descriptors of this process.
class Descriptors {
 public:
  Descriptors() { getrlimit(RLIMIT_NOFILE, &before_); }
  ~Descriptors() { Free(); }
  // Takes all that are left.
  void Exhaust() {
    rlimit low = before_;
    low.rlim_cur = 200;
    setrlimit(RLIMIT_NOFILE, &low);
    for (int fd = 0; (fd = dup(0)) >= 0;) taken_.emplace_back(fd);
  }
  void FreeOne() { taken_.pop_back(); }
  void Free() {
    taken_.clear();
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_ = {};
  std::vector<UniqueFd> taken_;
};

double ProcessorMs() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

TEST_F(LocalTest, ReadersWaitWhileTheWriterHasNoDescriptors) {
  // Without InitLogging, lines go to either place.
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  Descriptors descriptors;
  descriptors.Exhaust();
  descriptors.FreeOne();
  absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(handle_.local(), Soon());
  ASSERT_TRUE(socket.ok()) << socket.status();
  ASSERT_TRUE(socket->Send(Hello(), {}, Soon()).ok());
  const double before = ProcessorMs();
  const Instant moment = Clock::Steady().Now() + absl::Milliseconds(500);
  const absl::Status waits = socket->Receive(moment).status();
  const double spent = ProcessorMs() - before;
  descriptors.Free();
  const absl::Status welcome = socket->Receive(Soon()).status();
  const std::string logged = absl::StrCat(::testing::internal::GetCapturedStdout(),
                                          ::testing::internal::GetCapturedStderr());
  EXPECT_EQ(waits.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(spent, 100);
  EXPECT_TRUE(welcome.ok()) << welcome;
  const std::vector<std::string> lines = absl::StrSplit(logged, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("new readers of a queue have to wait"));
}

TEST_F(LocalTest, AStepOutOfSequenceIsTheLast) {
  absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(handle_.local(), Soon());
  ASSERT_TRUE(socket.ok()) << socket.status();
  v1::QueueLocalStep step;
  step.set_mapped(true);
  ASSERT_TRUE(socket->Send(step.SerializeAsString(), {}, Soon()).ok());
  absl::StatusOr<shm::LocalSocket::Message> answer = socket->Receive(Soon());
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_TRUE(step.ParseFromString(answer->bytes));
  EXPECT_EQ(step.step_case(), v1::QueueLocalStep::kRefused);
  EXPECT_EQ(socket->Receive(Soon()).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cohort::parallel
