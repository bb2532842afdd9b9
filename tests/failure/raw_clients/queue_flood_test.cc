// A stranger floods the port of a message queue with HTTP/2 frames that no client sends. The
// writer's process closes its connection, keeps little memory for it, and serves its reader.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/raw_http2.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr char kMethod[] = "/cohort.v1.QueueService/Read";

class QueueFloodTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    for (const char* rank : {"0", "1"}) {
      ends_.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
          "tests/parallel/testing/queue_main", "rank", coordinator_.address(), "queue", rank, "2",
          absl::StrCat("host=", rank), "listen=127.0.0.1:0"}));
    }
    EXPECT_EQ(Line(0), "made self");
    const std::string made = Line(1);  // "made stream 127.0.0.1:PORT"
    ASSERT_TRUE(absl::SimpleAtoi(made.substr(made.rfind(':') + 1), &port_)) << made;
    PassValues();
  }

  std::string Line(int rank) {
    const auto line = ends_[static_cast<size_t>(rank)]->ReadLine(kTimeout);
    return line.ok() ? *line : line.status().ToString();
  }
  void PassValues() {
    ends_[1]->WriteLine("read 0 100 7 100000 60000");
    ends_[0]->WriteLine("write 0 100 7 100000 60000");
    EXPECT_EQ(Line(1), "running");
    for (const int rank : {0, 1}) EXPECT_EQ(Line(rank), "100 OK ");
  }
  // Sends `first`, and then the results of `make`. Expects that the writer closes the connection
  // because of `limit`, and nothing else.
  void Run(const std::string& limit, const std::string& first,
           const std::function<std::string()>& make) {
    const int64_t before = ResidentBytes(ends_[0]->pid());
    RawHttp2 connection(port_, RawHttp2::Greeting());
    ASSERT_TRUE(connection.Send(first));
    int64_t sent = 0;
    for (std::string bytes = make(); sent < kMostBytes && connection.Send(bytes); bytes = make()) {
      sent += static_cast<int64_t>(bytes.size());
    }
    EXPECT_TRUE(connection.AwaitClosed(kTimeout));
    EXPECT_THAT(Line(0),
                HasSubstr(absl::StrCat("closed a connection peer=127.0.0.1 why=\"the HTTP/2 "
                                       "frames of a connection are over ",
                                       limit)));
    PassValues();
    EXPECT_LE(ResidentBytes(ends_[0]->pid()) - before, kMostBytes);
    ends_[0]->WriteLine("departures");
    EXPECT_EQ(Line(0), "");
  }

  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::vector<std::unique_ptr<ChildProcess>> ends_;
  int port_ = 0;
};

TEST_F(QueueFloodTest, AHeaderBlockWithoutEnd) {
  // One literal whose length field claims 300 MiB.
  const std::string first = absl::StrCat(RequestBlock(kMethod),
                                         absl::string_view("\x00\x01x\x7f\x81\xff\xff\x95\x01", 9));
  const std::string more = Frame(FrameType::kContinuation, 0, 1, std::string(15000, 'a'));
  Run("max_header_block_bytes (65536)", Frame(FrameType::kHeaders, 0, 1, first),
      [&] { return more; });
}

TEST_F(QueueFloodTest, RapidResets) {
  uint32_t stream = 1;
  const std::string block = RequestBlock(kMethod);
  Run("max_resets_per_second (1000)", "", [&] {
    std::string many;
    for (int i = 0; i < 200; ++i, stream += 2) {
      many += Frame(FrameType::kHeaders, kEndHeaders, stream, block);
      many += Frame(FrameType::kResetStream, 0, stream, Number32(8));
    }
    return many;
  });
}

}  // namespace
}  // namespace cohort::testing
