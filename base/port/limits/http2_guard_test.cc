#include "base/port/limits/http2_guard.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;

std::string Number32(uint32_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(number >> shift));
  return text;
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string frame = Number32(static_cast<uint32_t>(payload.size())).substr(1);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return absl::StrCat(frame, Number32(stream), payload);
}

std::string Headers(uint32_t stream, uint8_t flags = kEndHeaders) {
  return Frame(1, flags, stream, "\x83\x86");
}
std::string Data(uint32_t stream, absl::string_view bytes, uint8_t flags = 0) {
  return Frame(0, flags, stream, bytes);
}
std::string Reset(uint32_t stream) { return Frame(3, 0, stream, Number32(8)); }
std::string Update(uint32_t bytes, uint32_t stream = 0) {
  return Frame(8, 0, stream, Number32(bytes));
}
std::string Message(size_t bytes) {
  return absl::StrCat(std::string(1, '\0'), Number32(static_cast<uint32_t>(bytes)),
                      std::string(bytes, 'm'));
}

class Http2GuardTest : public ::testing::Test {
 protected:
  Http2GuardTest() { EXPECT_TRUE(Receive(kHttp2Preface).ok()); }

  absl::Status Receive(absl::string_view bytes) { return guard_.OnReceived(bytes, now_, suspect_); }
  // How many repetitions of `frame` are taken, up to `most`.
  int Taken(const std::string& frame, int most) {
    for (int i = 0; i < most; ++i) {
      const absl::Status status = Receive(frame);
      if (status.ok()) continue;
      error_ = std::string(status.message());
      return i;
    }
    return most;
  }

  Http2Limits limits_;
  Http2Guard guard_{limits_};
  Instant now_ = absl::UnixEpoch();
  bool suspect_ = false;
  std::string error_;
};

TEST_F(Http2GuardTest, ARequestIsKnownOnceItsHeadersAreComplete) {
  ASSERT_TRUE(Receive(Frame(4, 0, 0, "")).ok());
  ASSERT_TRUE(Receive(Headers(1, 0)).ok());
  EXPECT_FALSE(guard_.has_request());
  ASSERT_TRUE(Receive(Frame(9, kEndHeaders, 1, "more")).ok());
  EXPECT_TRUE(guard_.has_request());
}

TEST_F(Http2GuardTest, OtherProtocolsAreRefused) {
  Http2Guard other(limits_);
  EXPECT_TRUE(other.OnReceived("PRI * HT", now_, false).ok());
  EXPECT_EQ(other.OnReceived("TP/1.1", now_, false).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Http2GuardTest, AHeaderBlockHasALimitOfBytesAndOfFrames) {
  ASSERT_TRUE(Receive(Headers(1, 0)).ok());
  EXPECT_EQ(Taken(Frame(9, 0, 1, std::string(16384, 'h')), 100), 3);
  EXPECT_THAT(error_, HasSubstr("max_header_block_bytes (65536)"));
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(kHttp2Preface).ok());
  ASSERT_TRUE(Receive(Headers(1, 0)).ok());
  EXPECT_EQ(Taken(Frame(9, 0, 1, ""), 100), 31);
  EXPECT_THAT(error_, HasSubstr("max_header_frames (32)"));
}

TEST_F(Http2GuardTest, AHeaderBlockIsNotInterruptedAndAContinuationNeedsOne) {
  EXPECT_FALSE(Receive(Frame(9, kEndHeaders, 1, "")).ok());
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(kHttp2Preface).ok());
  ASSERT_TRUE(Receive(Headers(1, 0)).ok());
  EXPECT_FALSE(Receive(Data(1, "x")).ok());
}

TEST_F(Http2GuardTest, ResetsHaveABurstAndARate) {
  uint32_t stream = 1;
  const auto reset_many = [&](int most) {
    for (int i = 0; i < most; ++i, stream += 2) {
      const absl::Status status = Receive(absl::StrCat(Headers(stream), Reset(stream)));
      if (status.ok()) continue;
      error_ = std::string(status.message());
      return i;
    }
    return most;
  };
  EXPECT_EQ(reset_many(1000), 1000);
  now_ += absl::Milliseconds(500);
  EXPECT_EQ(reset_many(5000), 500);
  EXPECT_THAT(error_, HasSubstr("max_resets_per_second (1000)"));
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(kHttp2Preface).ok());
  suspect_ = true;
  EXPECT_EQ(reset_many(5000), 62);
}

TEST_F(Http2GuardTest, ManyEarlyResetsAskForAPause) {
  uint32_t stream = 1;
  const auto reset_many = [&](int count) {
    for (int i = 0; i < count; ++i, stream += 2) {
      ASSERT_TRUE(Receive(absl::StrCat(Headers(stream), Reset(stream))).ok());
    }
  };
  reset_many(127);
  EXPECT_EQ(guard_.Pause(), absl::ZeroDuration());
  reset_many(33);
  // Until 96 of the 160 are worked off, at 4000 a second.
  EXPECT_EQ(guard_.Pause(), absl::Milliseconds(24));
  now_ += absl::Milliseconds(24);
  ASSERT_TRUE(Receive(Headers(stream)).ok());
  EXPECT_EQ(guard_.Pause(), absl::ZeroDuration());
  // Calls that were parked for a second cost nothing.
  stream += 2;
  const uint32_t first = stream;
  for (; stream < first + 2000; stream += 2) ASSERT_TRUE(Receive(Headers(stream)).ok());
  now_ += absl::Seconds(1);
  for (uint32_t id = first; id < stream; id += 2) ASSERT_TRUE(Receive(Reset(id)).ok());
  EXPECT_EQ(guard_.Pause(), absl::ZeroDuration());
}

TEST_F(Http2GuardTest, KnowsWhichBytesPrecedeTheOffence) {
  const std::string whole = absl::StrCat(Headers(1), Data(1, Message(3)), Headers(3));
  ASSERT_TRUE(Receive(absl::StrCat(whole, Headers(5).substr(0, 4))).ok());
  EXPECT_EQ(guard_.whole_bytes(), whole.size());
  EXPECT_FALSE(guard_.between_frames());
  EXPECT_FALSE(Receive(absl::StrCat(Headers(5).substr(4), Frame(9, 0, 1, ""))).ok());
  EXPECT_EQ(guard_.whole_bytes(), Headers(5).size() - 4);
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(absl::StrCat(kHttp2Preface, Headers(1), Headers(3, 0))).ok());
  EXPECT_FALSE(guard_.between_frames());
  // The header block has begun before.
  EXPECT_FALSE(Receive(Data(1, "abc")).ok());
  EXPECT_EQ(guard_.whole_bytes(), std::nullopt);
}

TEST_F(Http2GuardTest, ResetsItsStreamsAFewAtATime) {
  for (uint32_t stream = 1; stream < 11; stream += 2) ASSERT_TRUE(Receive(Headers(stream)).ok());
  EXPECT_EQ(guard_.open_streams(), 5);
  std::string frames = guard_.ResetStreams(2);
  EXPECT_EQ(frames.size(), 2 * Reset(1).size());
  EXPECT_EQ(guard_.open_streams(), 3);
  frames += guard_.ResetStreams(100);
  for (uint32_t stream = 1; stream < 11; stream += 2) EXPECT_THAT(frames, HasSubstr(Reset(stream)));
  EXPECT_EQ(frames.size(), 5 * Reset(1).size());
  EXPECT_EQ(guard_.ResetStreams(100), "");
}

TEST_F(Http2GuardTest, AClientMayCancelAllCallsThatWereParkedForASecond) {
  for (uint32_t round = 0; round < 5; ++round) {
    std::string bytes;
    const uint32_t first = 1 + round * 4000;
    for (uint32_t stream = first; stream < first + 4000; stream += 2) {
      absl::StrAppend(&bytes, Headers(stream), Data(stream, Message(40), kEndStream));
    }
    ASSERT_TRUE(Receive(bytes).ok());
    now_ += absl::Seconds(1);
    bytes.clear();
    for (uint32_t stream = first; stream < first + 4000; stream += 2) bytes += Reset(stream);
    ASSERT_TRUE(Receive(bytes).ok());
  }
}

TEST_F(Http2GuardTest, SettingsAndIdleFramesHaveARate) {
  EXPECT_EQ(Taken(Frame(4, 0, 0, ""), 1000), 100);
  EXPECT_THAT(error_, HasSubstr("max_settings_per_second (100)"));
  for (const std::string& idle :
       {Frame(6, 0, 0, "12345678"), Frame(6, 1, 0, "12345678"), Frame(2, 0, 1, "12345"),
        Data(1, ""), Update(1), Frame(77, 0, 1, "x"), Frame(7, 0, 0, "12345678")}) {
    guard_ = Http2Guard(limits_);
    ASSERT_TRUE(Receive(kHttp2Preface).ok());
    EXPECT_EQ(Taken(idle, 100000), 5000) << static_cast<int>(idle[3]);
    EXPECT_THAT(error_, HasSubstr("max_idle_frames_per_second (5000)"));
  }
}

// gRPC's clients update the connection's window by a few bytes with each request that they write.
TEST_F(Http2GuardTest, IdleFramesThatGoWithRequestsAndTransfersAreNotCounted) {
  uint32_t stream = 1;
  for (int i = 0; i < 30000; ++i, stream += 2) {
    ASSERT_TRUE(Receive(absl::StrCat(Update(50), Headers(stream), Update(7),
                                     Data(stream, Message(40), kEndStream)))
                    .ok())
        << i;
    guard_.OnSent(Headers(stream, kEndStream | kEndHeaders));
  }
  EXPECT_EQ(Taken(Update(1 << 20), 100000), 100000);
}

TEST_F(Http2GuardTest, StreamsCountUntilEitherSideEndsThem) {
  const auto open_many = [&](uint32_t first, int most) {
    for (int i = 0; i < most; ++i) {
      const absl::Status status = Receive(Headers(first + 2 * static_cast<uint32_t>(i)));
      if (status.ok()) continue;
      error_ = std::string(status.message());
      return i;
    }
    return most;
  };
  // A few more than the limit: the client has not said that it knows the limit.
  EXPECT_EQ(open_many(1, 2000), 2000);
  for (uint32_t stream = 1; stream < 4001; stream += 2) guard_.OnSent(Headers(stream, kEndStream));
  EXPECT_EQ(open_many(4001, 10000), 2048 + 128);
  EXPECT_THAT(error_, HasSubstr("max_concurrent_streams (2048)"));
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(absl::StrCat(kHttp2Preface, Frame(4, 1, 0, ""))).ok());
  // gRPC would end all streams at once at the next one.
  EXPECT_EQ(open_many(1, 10000), 2048);
}

TEST_F(Http2GuardTest, UnfinishedMessagesCountUntilTheyAreComplete) {
  limits_.max_concurrent_streams = 0;
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(kHttp2Preface).ok());
  const std::string part = Message(4 << 20).substr(0, 16384);
  // Complete messages, on one stream that stays open: an upload.
  ASSERT_TRUE(Receive(Headers(1)).ok());
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(Receive(Data(1, Message(16000))).ok()) << i;
    guard_.OnSent(Update(16005, 1));
  }
  uint32_t stream = 3;
  int taken = 0;
  absl::Status status;
  for (; taken < 20000; ++taken, stream += 2) {
    status = Receive(absl::StrCat(Headers(stream), Data(stream, part)));
    if (!status.ok()) break;
    // Streams that are reset, or that the server ends, are forgotten.
    if (taken % 3 == 1) {
      now_ += absl::Seconds(1);
      ASSERT_TRUE(Receive(Reset(stream)).ok());
    }
    if (taken % 3 == 2) guard_.OnSent(Frame(3, 0, stream, Number32(0)));
  }
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_unfinished_bytes (33554432)"));
  EXPECT_NEAR(taken, 3 * 2048, 200);
}

TEST_F(Http2GuardTest, AStreamThatEndsWithinAMessageCountsOnce) {
  limits_.max_unfinished_bytes = 64 << 10;
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(kHttp2Preface).ok());
  const std::string part = Message(4 << 20).substr(0, 10000);
  uint32_t stream = 1;
  for (; stream < 21; stream += 2) {
    ASSERT_TRUE(Receive(absl::StrCat(Headers(stream), Data(stream, part, kEndStream))).ok());
    EXPECT_EQ(guard_.unfinished_bytes(), 0);
  }
  // Half of them end by the server, the others by the client.
  for (uint32_t ended = 1; ended < stream; ended += 2) {
    if (ended % 4 == 1) {
      guard_.OnSent(Headers(ended, kEndStream));
    } else {
      ASSERT_TRUE(Receive(Reset(ended)).ok());
    }
  }
  EXPECT_EQ(guard_.open_streams(), 0);
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
  // With its piece's overhead each frame counts as 1 KiB.
  ASSERT_TRUE(Receive(Headers(stream)).ok());
  ASSERT_TRUE(Receive(Data(stream, part.substr(0, 960))).ok());
  EXPECT_EQ(Taken(Data(stream, std::string(960, 'm')), 1000), 62);  // the headers count, too
  EXPECT_THAT(error_, HasSubstr("max_unfinished_bytes (65536)"));
}

// gRPC keeps them, and the service that takes one message never asks for them.
TEST_F(Http2GuardTest, FurtherMessagesCountUntilTheServerGivesRoomForMore) {
  constexpr int64_t kMessage = 5 + 1000;
  ASSERT_TRUE(Receive(absl::StrCat(Headers(1), Data(1, Message(5000)))).ok());
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
  guard_.OnSent(Update(5005, 3));
  guard_.OnSent(Update(5005));
  ASSERT_TRUE(Receive(Data(1, Message(1000) + Message(1000))).ok());
  ASSERT_TRUE(Receive(Data(1, Message(1000))).ok());
  EXPECT_GE(guard_.unfinished_bytes(), 3 * kMessage);
  EXPECT_LT(guard_.unfinished_bytes(), 3 * kMessage + 200);
  // A service that reads gives room early or late, in any pieces.
  const std::string update = Update(3 * kMessage, 1);
  for (const char byte : update) guard_.OnSent(absl::string_view(&byte, 1));
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
  for (int i = 0; i < 100000; ++i) {
    guard_.OnSent(Update(kMessage, 1));
    ASSERT_TRUE(Receive(Data(1, Message(1000))).ok());
  }
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
  // One that does not read has a limit, also over several streams. They count until they end.
  ASSERT_TRUE(Receive(absl::StrCat(Headers(3), Data(3, Message(10)))).ok());
  ASSERT_TRUE(Receive(Data(3, Message(1000), kEndStream)).ok());
  EXPECT_EQ(guard_.unfinished_bytes(), kMessage);
  EXPECT_NEAR(Taken(Data(1, Message(1000)), 1 << 20), (32 << 20) / kMessage, 2);
  EXPECT_THAT(error_, HasSubstr("max_unfinished_bytes (33554432)"));
  guard_.OnSent(Headers(1, kEndStream));
  EXPECT_EQ(guard_.unfinished_bytes(), kMessage);
  guard_.OnSent(Reset(3));
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
}

// gRPC keeps them, and does not answer before the request is whole.
TEST_F(Http2GuardTest, HeadersCountUntilTheRequestIsWhole) {
  constexpr int64_t kHeaders = 2 + 2 * 10000;
  const std::string block = absl::StrCat(Headers(1, 0), Frame(9, 0, 1, std::string(10000, 'h')),
                                         Frame(9, kEndHeaders, 1, std::string(10000, 'h')));
  ASSERT_TRUE(Receive(block).ok());
  EXPECT_EQ(guard_.unfinished_bytes(), kHeaders);
  ASSERT_TRUE(Receive(Data(1, Message(5))).ok());
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
  ASSERT_TRUE(Receive(Headers(3)).ok());
  EXPECT_EQ(guard_.unfinished_bytes(), 2);
  guard_.OnSent(Reset(3));
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
  ASSERT_TRUE(Receive(Headers(5, kEndHeaders | kEndStream)).ok());
  EXPECT_EQ(guard_.unfinished_bytes(), 0);
}

TEST_F(Http2GuardTest, AClientThatTakesNoAnswersIsRefused) {
  const auto settings = [](uint32_t window) {
    return Frame(4, 0, 0,
                 absl::StrCat(absl::string_view("\0\3\0\0\0\x64\0\4", 8), Number32(window)));
  };
  for (const uint32_t window : {1024u, 65535u, 0x7fffffffu})
    EXPECT_TRUE(Receive(settings(window)).ok()) << window;
  for (const uint32_t window : {0u, 1u, 1023u}) {
    guard_ = Http2Guard(limits_);
    ASSERT_TRUE(Receive(kHttp2Preface).ok());
    const std::string frame = settings(window);
    absl::Status status;
    for (const char byte : frame) status.Update(Receive(absl::string_view(&byte, 1)));
    EXPECT_EQ(status.message(), absl::StrCat("HTTP/2: the client takes ", window,
                                             " bytes of an answer at first, and 1024 are the "
                                             "fewest"));
  }
}

TEST_F(Http2GuardTest, AStreamIsUnfinishedUntilItsRequestIsWhole) {
  for (const uint32_t stream : {1, 3, 5, 7}) ASSERT_TRUE(Receive(Headers(stream)).ok());
  EXPECT_EQ(guard_.unfinished_streams(), 4);
  ASSERT_TRUE(Receive(Data(1, Message(10))).ok());               // a whole message
  ASSERT_TRUE(Receive(Data(3, Message(10).substr(0, 5))).ok());  // half of one
  ASSERT_TRUE(Receive(Data(5, "", kEndStream)).ok());            // ended by the client
  ASSERT_TRUE(Receive(Reset(7)).ok());
  EXPECT_EQ(guard_.unfinished_streams(), 1);
  EXPECT_EQ(guard_.open_streams(), 3);
  guard_.OnSent(Headers(3, kEndStream));
  EXPECT_EQ(guard_.unfinished_streams(), 0);
  // Those of a whole request are open until the server ends them.
  EXPECT_EQ(guard_.open_streams(), 2);
}

TEST_F(Http2GuardTest, ACompressedMessageIsRefusedBeforeItsBytes) {
  ASSERT_TRUE(Receive(Headers(1)).ok());
  ASSERT_TRUE(Receive(Data(1, Message(10))).ok());
  const absl::Status status = Receive(Data(1, std::string(1, '\1')));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("compressed"));
}

TEST_F(Http2GuardTest, AMessageInFramesOfOneByteIsRefused) {
  ASSERT_TRUE(Receive(Headers(1)).ok());
  ASSERT_TRUE(Receive(Data(1, absl::StrCat(std::string(1, '\0'), Number32(4000000)))).ok());
  EXPECT_NEAR(Taken(Data(1, "x"), 4000000), 5000, 10);
  EXPECT_THAT(error_, HasSubstr("max_idle_frames_per_second (5000)"));
}

TEST_F(Http2GuardTest, ManySmallMessagesOfOneStreamAreServed) {
  ASSERT_TRUE(Receive(Headers(1)).ok());
  EXPECT_EQ(Taken(absl::StrCat(Update(60), Data(1, Message(20)), Update(20)), 100000), 100000);
}

TEST_F(Http2GuardTest, AMessageInSmallFramesCountsAsMore) {
  limits_.max_unfinished_bytes = 1 << 20;
  guard_ = Http2Guard(limits_);
  ASSERT_TRUE(Receive(kHttp2Preface).ok());
  ASSERT_TRUE(Receive(Headers(1)).ok());
  ASSERT_TRUE(Receive(Data(1, absl::StrCat(std::string(1, '\0'), Number32(4000000)))).ok());
  EXPECT_NEAR(Taken(Data(1, std::string(256, 'x')), 10000), (1 << 20) / (256 + 64), 10);
  EXPECT_THAT(error_, HasSubstr("max_unfinished_bytes (1048576)"));
}

TEST_F(Http2GuardTest, BytesComeInAnyPieces) {
  std::mt19937 random(7);
  std::string bytes;
  for (uint32_t stream = 1; stream < 200; stream += 2) {
    absl::StrAppend(&bytes, Headers(stream, 0), Frame(9, kEndHeaders, stream, "abc"), Update(9),
                    Data(stream, Message(random() % 5000)), Data(stream, "", kEndStream));
  }
  bytes += std::string(9, '\0');
  bytes += Reset(1);
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = 1 + random() % 40;
    ASSERT_TRUE(Receive(absl::string_view(bytes).substr(at, size)).ok()) << at;
    at += size;
  }
  // In step still: a wrong frame is seen at once.
  EXPECT_FALSE(Receive(Frame(9, 0, 1, "")).ok());
}

}  // namespace
}  // namespace cohort
