#include "base/framed_rpc/frame.h"

#include <cstring>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using Next = FrameReader::Next;

std::string Bytes(Header header, absl::string_view body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  std::string bytes;
  AppendHeader(header, &bytes);
  return bytes.append(body.data(), body.size());
}

void Feed(absl::string_view bytes, FrameReader& reader) {
  std::memcpy(reader.Room(bytes.size()), bytes.data(), bytes.size());
  reader.Filled(bytes.size());
}

TEST(FrameTest, CarriesEveryField) {
  const std::string bytes =
      Bytes(Header{0, 0xfffffffe, Kind::kReply, 16, 0xfedc, kNoTimeout - 1}, "body");
  ASSERT_EQ(bytes.size(), kHeaderBytes + 4);
  FrameReader reader(100);
  Feed(bytes, reader);
  Frame frame;
  ASSERT_EQ(reader.Read(&frame), Next::kFrame);
  EXPECT_EQ(frame.body, "body");
  EXPECT_EQ(frame.header.body_bytes, 4);
  EXPECT_EQ(frame.header.call, 0xfffffffe);
  EXPECT_EQ(frame.header.kind, Kind::kReply);
  EXPECT_EQ(frame.header.code, 16);
  EXPECT_EQ(frame.header.method, 0xfedc);
  EXPECT_EQ(frame.header.extra, kNoTimeout - 1);
  EXPECT_EQ(reader.Read(&frame), Next::kMore);
}

// However the stream is cut.
TEST(FrameTest, ReadsAnyPieces) {
  std::string stream;
  for (uint32_t call = 1; call <= 20; ++call) {
    stream += Bytes(Header{0, call, Kind::kCall}, std::string(call * 7 % 50, 'a'));
  }
  for (size_t piece : {1, 2, 15, 16, 17, 33, 1000}) {
    FrameReader reader(50);
    uint32_t call = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      Feed(absl::string_view(stream).substr(at, piece), reader);
      Frame frame;
      while (reader.Read(&frame) == Next::kFrame) {
        EXPECT_EQ(frame.header.call, ++call);
        EXPECT_EQ(frame.body, std::string(call * 7 % 50, 'a'));
      }
    }
    EXPECT_EQ(call, 20) << piece;
  }
}

TEST(FrameTest, SkipsFramesThatAreTooLarge) {
  const std::string stream = Bytes(Header{0, 1, Kind::kCall}, std::string(101, 'x')) +
                             Bytes(Header{0, 2, Kind::kCall}, std::string(100, 'y'));
  for (size_t piece : {1, 50, 116, 300}) {
    FrameReader reader(100);
    std::string seen;
    for (size_t at = 0; at < stream.size(); at += piece) {
      Feed(absl::string_view(stream).substr(at, piece), reader);
      Frame frame;
      for (Next next = reader.Read(&frame); next != Next::kMore; next = reader.Read(&frame)) {
        seen += next == Next::kTooLarge ? "L" : "F";
        seen += std::to_string(frame.header.call);
      }
    }
    EXPECT_EQ(seen, "L1F2") << piece;
  }
}

TEST(FrameTest, OtherProtocolsAreBroken) {
  FrameReader reader(std::numeric_limits<uint32_t>::max());
  Feed("GET / HTTP/1.1\r\nHost: a\r\n\r\n", reader);
  Frame frame;
  EXPECT_EQ(reader.Read(&frame), Next::kBroken);
}

TEST(FrameTest, ALargeFrameLeavesNoLargeSpareBuffer) {
  constexpr size_t kLarge = size_t{4} << 20;
  std::string spare;
  FrameReader reader(kLarge);
  reader.Borrow(&spare);
  Feed(Bytes(Header{0, 1, Kind::kCall, 0, 0, 0}, std::string(kLarge, 'x')), reader);
  Frame frame;
  ASSERT_EQ(reader.Read(&frame), Next::kFrame);
  reader.GiveBack(&spare);
  EXPECT_LE(spare.capacity(), size_t{256} << 10);

  reader.Borrow(&spare);
  Feed(Bytes(Header{0, 2, Kind::kCall, 0, 0, 0}, std::string(1000, 'x')), reader);
  ASSERT_EQ(reader.Read(&frame), Next::kFrame);
  reader.GiveBack(&spare);
  EXPECT_GE(spare.size(), 1000u) << "a small buffer is lent to the next reader";
}

TEST(FrameTest, ReportsTheNumberOfMissingBytes) {
  FrameReader reader(100);
  Feed(Bytes(Header{0, 1, Kind::kCall}, "0123456789").substr(0, kHeaderBytes + 4), reader);
  Frame frame;
  EXPECT_EQ(reader.Read(&frame), Next::kMore);
  EXPECT_EQ(reader.wanted(), 6);
}

TEST(FrameReader, GivesUpAFrameAndReadsTheNext) {
  std::string bytes;
  for (uint32_t call : {1, 2}) {
    Header header;
    header.kind = Kind::kCall;
    header.call = call;
    header.body_bytes = 1000;
    AppendHeader(header, &bytes);
    bytes.append(1000, static_cast<char>('0' + call));
  }
  FrameReader reader(2000);
  const auto feed = [&](size_t from, size_t size) {
    std::memcpy(reader.Room(size), bytes.data() + from, size);
    reader.Filled(size);
  };
  Frame frame;
  EXPECT_FALSE(reader.GiveUpFrame(&frame)) << "no frame has begun";
  feed(0, 100);
  ASSERT_EQ(reader.Read(&frame), FrameReader::Next::kMore);
  ASSERT_TRUE(reader.GiveUpFrame(&frame));
  EXPECT_EQ(frame.header.call, 1u);
  EXPECT_EQ(reader.held(), 0u);
  feed(100, bytes.size() - 100);
  ASSERT_EQ(reader.Read(&frame), FrameReader::Next::kFrame);
  EXPECT_EQ(frame.header.call, 2u);
  EXPECT_EQ(frame.body, std::string(1000, '2'));
}

}  // namespace
}  // namespace cohort::framed_rpc
