#include "base/framed_rpc/server/request_reader.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/server_protocol.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using Next = RequestReader::Next;

constexpr size_t kMaxMessageBytes = size_t{32} << 20;
constexpr size_t kLargestRead = size_t{1} << 20;

class RequestReaderTest : public ::testing::Test {
 protected:
  static std::string CallOf(size_t body_bytes) {
    Header header;
    header.kind = Kind::kCall;
    header.call = 1;
    header.body_bytes = static_cast<uint32_t>(body_bytes);
    std::string bytes;
    AppendHeader(header, &bytes);
    return bytes;
  }
  // Passes bytes to the reader, as a server does with those that it has received.
  void Receive(absl::string_view bytes) {
    while (!bytes.empty()) {
      size_t size = 0;
      char* const room = reader_.Room(&size, refuse_);
      ASSERT_NE(room, nullptr);
      largest_room_ = std::max(largest_room_, size);
      size = std::min(size, bytes.size());
      std::memcpy(room, bytes.data(), size);
      reader_.Filled(size);
      bytes.remove_prefix(size);
      next_ = reader_.Read(&frame_, &error_);
      EXPECT_TRUE(reader_.Charge(has_role_, refuse_));
    }
  }

  const ServerProtocol protocol_{{"test.Service/Echo"}, kMaxMessageBytes};
  const std::shared_ptr<IncompleteRequestBytes> incoming_ =
      std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", int64_t{1} << 40);
  RequestReader reader_{protocol_, incoming_};
  std::function<bool(const Frame&, const absl::Status&)> refuse_ = [](const Frame&,
                                                                      const absl::Status& error) {
    ADD_FAILURE() << error;
    return false;
  };
  bool has_role_ = true;
  size_t largest_room_ = 0;
  // The result of the last Read.
  Next next_ = Next::kMore;
  Frame frame_;
  absl::Status error_;
};

TEST_F(RequestReaderTest, MemoryGrowsWithTheBytesThatHaveArrived) {
  Receive(kPreface);
  EXPECT_EQ(next_, Next::kPreface);
  Receive(CallOf(kMaxMessageBytes));
  EXPECT_EQ(next_, Next::kMore);
  Receive("a few bytes");
  EXPECT_LE(incoming_->held(), int64_t{256} << 10) << "a declared size takes no memory";
  const size_t left = kMaxMessageBytes - std::strlen("a few bytes");
  Receive(std::string(left / 4, 'x'));
  EXPECT_EQ(next_, Next::kMore);
  EXPECT_GE(incoming_->held(), static_cast<int64_t>(left / 4));
  EXPECT_LE(incoming_->held(), static_cast<int64_t>(left));
  EXPECT_LE(largest_room_, 2 * kLargestRead);
  Receive(std::string(left - left / 4, 'x'));
  EXPECT_EQ(next_, Next::kFrame);
  EXPECT_EQ(error_, absl::OkStatus());
  EXPECT_EQ(frame_.body.size(), kMaxMessageBytes);
  EXPECT_EQ(incoming_->held(), 0);
}

TEST_F(RequestReaderTest, ARequestThatIsTooLargeIsSkipped) {
  Receive(kPreface);
  Receive(CallOf(kMaxMessageBytes + 1));
  EXPECT_EQ(next_, Next::kFrame);
  EXPECT_EQ(error_.code(), absl::StatusCode::kResourceExhausted);
  Receive(std::string(kMaxMessageBytes + 1, 'x'));
  EXPECT_EQ(next_, Next::kMore);
  Receive(CallOf(0));
  EXPECT_EQ(next_, Next::kFrame);
  EXPECT_EQ(error_, absl::OkStatus());
}

TEST_F(RequestReaderTest, ALargeRequestOfAClientWithoutARoleIsSkipped) {
  has_role_ = false;
  std::vector<absl::Status> errors;
  refuse_ = [&](const Frame&, const absl::Status& error) {
    errors.push_back(error);
    return true;
  };
  Receive(kPreface);
  // The server refuses small ones by their method.
  Receive(CallOf(5));
  Receive("small");
  EXPECT_EQ(next_, Next::kFrame);
  Receive(CallOf(kMaxMessageBytes));
  Receive(std::string(kMaxMessageBytes, 'x'));
  EXPECT_EQ(next_, Next::kMore);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_LE(largest_room_, 2 * kLargestRead);
  EXPECT_EQ(incoming_->held(), 0);
  Receive(CallOf(0));
  EXPECT_EQ(next_, Next::kFrame);
}

TEST_F(RequestReaderTest, AnotherPrefaceIsBroken) {
  Receive("GET / HTTP/1.1\r\n");
  EXPECT_EQ(next_, Next::kBroken);
}

}  // namespace
}  // namespace cohort::framed_rpc
