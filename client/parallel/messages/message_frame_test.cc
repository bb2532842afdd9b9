// The decoders check bytes of another rank before they use them.
#include "client/parallel/messages/message_frame.h"

#include <cstring>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

constexpr auto kHeader = static_cast<size_t>(kFrameHeaderBytes);

struct Sent {
  std::string note;
  std::vector<Tensor> tensors;
  std::vector<Elements> elements;
  std::vector<RandomTensor> memory;
};

Frame FrameOf(const Sent& sent) {
  Frame frame;
  frame.channel = 7;
  frame.number = 41;
  frame.tensors = static_cast<uint32_t>(sent.tensors.size());
  frame.note_bytes = sent.note.size();
  for (size_t i = 0; i < sent.tensors.size(); ++i) {
    if (sent.elements[i] == Elements::kLater)
      frame.large_bytes += static_cast<uint64_t>(sent.tensors[i].bytes());
  }
  frame.bytes = EncodeBody(sent.note, sent.tensors, sent.elements);
  return frame;
}

Sent RandomMessage(std::mt19937& random) {
  Sent sent;
  sent.note.assign(random() % 100, 'n');
  const Elements others = random() % 2 == 0 ? Elements::kLater : Elements::kBehind;
  for (size_t tensors = random() % 5; tensors > 0; --tensors) {
    Shape shape;
    for (size_t dims = random() % 4; dims > 0; --dims) shape.push_back(random() % 5);
    const DataType type = kDataTypes[random() % kDataTypes.size()];
    sent.memory.emplace_back(type, shape, random);
    sent.tensors.push_back(sent.memory.back().tensor());
    const bool empty = sent.tensors.back().count() == 0;
    sent.elements.push_back(empty || random() % 2 == 0 ? Elements::kWithin : others);
  }
  return sent;
}

absl::StatusOr<Body> DecodeAll(absl::string_view bytes) {
  absl::StatusOr<Frame> header = DecodeFrameHeader(bytes);
  if (!header.ok()) return header.status();
  return DecodeBody(*header, bytes.substr(kHeader));
}

TEST(FrameTest, FramesRoundTrip) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const Sent sent = RandomMessage(random);
    const std::string bytes = EncodeFrame(FrameOf(sent));
    const absl::StatusOr<Frame> header = DecodeFrameHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->channel, 7);
    EXPECT_EQ(header->number, 41u);
    EXPECT_EQ(EncodedBytes(*header), static_cast<int64_t>(bytes.size()));
    const std::string body = bytes.substr(kHeader);
    const absl::StatusOr<Body> decoded = DecodeBody(*header, body);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->note, sent.note);
    ASSERT_EQ(decoded->metas.size(), sent.tensors.size());
    int64_t behind = 0;
    for (size_t i = 0; i < sent.tensors.size(); ++i) {
      EXPECT_EQ(decoded->metas[i], MetaOf(sent.tensors[i]));
      const int64_t place = decoded->places[i];
      if (sent.elements[i] != Elements::kWithin) {
        EXPECT_EQ(place, sent.elements[i] == Elements::kLater ? Body::kLater : Body::kBehind);
        if (place == Body::kBehind) behind += sent.tensors[i].bytes();
        continue;
      }
      ASSERT_GE(place, 0);
      EXPECT_EQ(body.substr(static_cast<size_t>(decoded->places[i]),
                            static_cast<size_t>(sent.tensors[i].bytes())),
                ElementsOf(sent.tensors[i]));
    }
    EXPECT_EQ(decoded->behind_bytes, behind);
  }
}

TEST(FrameTest, TruncatedFramesAreRejected) {
  std::mt19937 random(20261123);
  for (int round = 0; round < 20; ++round) {
    const std::string bytes = EncodeFrame(FrameOf(RandomMessage(random)));
    for (size_t length = 0; length < bytes.size(); ++length) {
      const absl::StatusOr<Body> cut = DecodeAll(bytes.substr(0, length));
      EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument) << length;
    }
    EXPECT_FALSE(DecodeAll(bytes + "x").ok());
  }
}

TEST(FrameTest, NoBytesDoHarm) {
  std::mt19937 random(20261124);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = EncodeFrame(FrameOf(RandomMessage(random)));
    if (round % 10 == 0) {
      for (char& byte : bytes) byte = static_cast<char>(random());
    }
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<Body> decoded = DecodeAll(bytes);
    if (!decoded.ok()) continue;
    // Accepted tensors lie within the bytes.
    for (size_t i = 0; i < decoded->metas.size(); ++i) {
      if (decoded->places[i] < 0) continue;
      EXPECT_LE(decoded->places[i] + decoded->metas[i].bytes(),
                static_cast<int64_t>(bytes.size() - kHeader));
    }
  }
}

TEST(FrameTest, AnotherVersionSaysSo) {
  std::string bytes = EncodeFrame(Frame());
  bytes[4] = 9;
  EXPECT_THAT(std::string(DecodeFrameHeader(bytes).status().message()),
              HasSubstr("version 9, which should be 3"));
}

TEST(FrameTest, TheReservedByteIsZero) {
  std::string bytes = EncodeFrame(Frame());
  bytes[5] = 1;
  EXPECT_THAT(std::string(DecodeFrameHeader(bytes).status().message()), HasSubstr("reserved"));
}

TEST(FrameTest, NumbersThatDoNotFitMemoryAreRefused) {
  Frame frame;
  frame.body_later = true;
  for (const uint64_t bytes : {uint64_t{1} << 63, ~uint64_t{0}, (uint64_t{1} << 63) - 8}) {
    frame.body_bytes = bytes;
    EXPECT_FALSE(DecodeFrameHeader(EncodeFrame(frame)).ok()) << bytes;
  }
  frame.body_bytes = 40;
  frame.large_bytes = ~uint64_t{0};
  EXPECT_FALSE(DecodeFrameHeader(EncodeFrame(frame)).ok());
  frame.large_bytes = 0;
  frame.tensors = 11;  // of four bytes at least each
  EXPECT_FALSE(DecodeFrameHeader(EncodeFrame(frame)).ok());
}

// The status from the bytes of a frame.
absl::Status Decoded(std::string bytes) {
  Frame frame;
  frame.bytes = std::move(bytes);
  return DecodeStatus(frame.body());
}

TEST(FrameTest, AStatusTravels) {
  const absl::Status status = absl::ResourceExhaustedError("no room");
  EXPECT_EQ(Decoded(EncodeStatus(status)), status);
  EXPECT_FALSE(DecodeStatus("").ok());
  EXPECT_FALSE(DecodeStatus(std::string(1, '\0')).ok());
  EXPECT_EQ(DecodeStatus("\xFFwhat").code(), absl::StatusCode::kUnknown);
}

TEST(FrameTest, ALongStatusIsCutBetweenCharacters) {
  for (const std::string before : {"", "x", "xy", "xyz"}) {
    std::string text = before;
    for (int i = 0; i < 300; ++i) text += "\xE2\x82\xAC";
    const std::string bytes = EncodeStatus(absl::InternalError(text));
    EXPECT_LE(static_cast<int64_t>(bytes.size()), kFrameBytes);
    const std::string cut(Decoded(bytes).message());
    EXPECT_GT(cut.size(), 450u);
    EXPECT_EQ(cut, text.substr(0, cut.size()));
    EXPECT_EQ((cut.size() - before.size()) % 3, 0u) << before;
  }
}

}  // namespace
}  // namespace cohort::parallel
