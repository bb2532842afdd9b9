#include "client/checkpoint/safetensors.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Length(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

// With the right length before it.
absl::StatusOr<Layout> Parse(const std::string& json, int64_t data_bytes) {
  const std::string header = Length(json.size()) + json;
  return ParseHeader(header, static_cast<int64_t>(header.size()) + data_bytes);
}

std::string TensorText(const std::string& name, const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}");
}

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat("{", TensorText("w", dtype, shape, offsets), "}");
}

void ExpectRefused(const std::string& json, int64_t data_bytes, const std::string& text) {
  const absl::StatusOr<Layout> layout = Parse(json, data_bytes);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_THAT(std::string(layout.status().message()), HasSubstr(text)) << json;
}

TEST(Header, ReadsFilesOfTheSafetensorsLibrary) {
  // Tensors in any order; the header is padded with blanks.
  const absl::StatusOr<Layout> layout =
      Parse(absl::StrCat("{\"__metadata__\":{\"format\":\"pt\"},",
                         TensorText("b", "F32", "[2,2]", "[8,24]"), ",",
                         TensorText("a", "BF16", "[4]", "[0,8]"), ",",
                         TensorText("empty", "I64", "[0,7]", "[24,24]"), ",",
                         TensorText("one", "U8", "[]", "[24,25]"), "}     "),
            25);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->metadata.at("format"), "pt");
  ASSERT_EQ(layout->tensors.size(), 4u);
  EXPECT_EQ(layout->tensors[0].name, "a");
  EXPECT_EQ(layout->tensors[0].type, DataType::kBF16);
  EXPECT_EQ(layout->tensors[1].shape, (Shape{2, 2}));
  EXPECT_EQ(layout->tensors[2].bytes(), 0);
  EXPECT_EQ(layout->tensors[3].shape, Shape{});
  EXPECT_EQ(layout->data_bytes, 25);
}

TEST(Header, AnEmptyTensorIsBeforeTheOneAtItsOffset) {
  const absl::StatusOr<Layout> layout =
      Parse(absl::StrCat("{", TensorText("a", "U8", "[4]", "[0,4]"), ",",
                         TensorText("empty", "U8", "[0]", "[0,0]"), "}"),
            4);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->tensors[0].name, "empty");
}

TEST(Header, MayHaveNoTensors) {
  const absl::StatusOr<Layout> layout = Parse("{}", 0);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->tensors, IsEmpty());
}

TEST(Header, LengthMustBeSane) {
  const auto refused = [](const std::string& front, int64_t file_bytes) {
    return std::string(HeaderBytes(front, file_bytes).status().message());
  };
  EXPECT_THAT(refused("", 0), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(refused("1234567", 7), HasSubstr("7 bytes are too few"));
  EXPECT_THAT(refused(Length(0), 8), HasSubstr("a header of 0 bytes"));
  EXPECT_THAT(refused(Length(100), 50), HasSubstr("should end at byte 108, but the file has 50"));
  EXPECT_THAT(refused(Length(kMaxHeaderBytes + 1), int64_t{1} << 40), HasSubstr("100000001 bytes"));
  EXPECT_THAT(refused(Length(std::numeric_limits<uint64_t>::max()), 1000),
              HasSubstr("18446744073709551615 bytes"));
  EXPECT_THAT(refused(Length(uint64_t{1} << 63), 1000), HasSubstr("a header of"));
}

TEST(Header, MustBeOneJsonObject) {
  ExpectRefused("[]", 0, "does not begin with '{'");
  ExpectRefused(" {}", 0, "does not begin with '{'");
  ExpectRefused("{\"w\":", 0, "is no JSON object");
  ExpectRefused("{} {}", 0, "is no JSON object");
  ExpectRefused(std::string("{}\0{", 4), 0, "has a zero byte");
  ExpectRefused("{\"\xff\":{}}", 0, "is no JSON object");
  ExpectRefused("{\"w\":3}", 0, "tensor 'w': is no JSON object");
}

TEST(Header, NamesAreThereOnce) {
  const std::string tensor = TensorText("w", "U8", "[1]", "[0,1]");
  ExpectRefused(absl::StrCat("{", tensor, ",", tensor, "}"), 1, "has the name 'w' twice");
  ExpectRefused(R"({"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
                "has the name 'dtype' twice");
  ExpectRefused(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "has the name 'a' twice");
  // Different tensors have the same fields.
  EXPECT_TRUE(
      Parse(absl::StrCat("{", tensor, ",", TensorText("x", "U8", "[1]", "[1,2]"), "}"), 2).ok());
}

TEST(Header, NestingIsNotFollowed) {
  ExpectRefused(absl::StrCat("{\"w\":", std::string(200000, '[')), 0, "'w': is no JSON object");
  ExpectRefused(absl::StrCat("{\"w\":{\"shape\":", std::string(200000, '[')), 0,
                "is nested too deep");
  ExpectRefused(R"({"w":{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}})", 1,
                "is nested too deep");
  ExpectRefused(R"({"w":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1,
                "is nested too deep");
}

TEST(Header, MetadataIsTexts) {
  ExpectRefused(R"({"__metadata__":[]})", 0, "__metadata__: is no JSON object");
  ExpectRefused(R"({"__metadata__":{"step":3}})", 0, "__metadata__: 'step' is no text");
}

TEST(Header, TensorsHaveTheirThreeFields) {
  ExpectRefused(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'w': has no dtype");
  ExpectRefused(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor 'w': has no shape");
  ExpectRefused(R"({"w":{"dtype":"U8","shape":[1]}})", 1, "tensor 'w': has no data_offsets");
  ExpectRefused(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", 1,
                "has more than");
}

TEST(Header, TypesAreNames) {
  ExpectRefused(One("", "[1]", "[0,4]"), 4, "tensor 'w': dtype \"\" is no name of a type");
  ExpectRefused(R"({"w":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1,
                "dtype 7 is no name of a type");
}

// The bytes of a type travel, whatever they mean.
TEST(Header, PackedTypesTravel) {
  const absl::StatusOr<Layout> layout =
      Parse(absl::StrCat("{\"__metadata__\":{},", TensorText("f4", "F4", "[2,8]", "[0,8]"), ",",
                         TensorText("f6a", "F6_E2M3", "[4]", "[8,11]"), ",",
                         TensorText("f6b", "F6_E3M2", "[2,2]", "[11,14]"), ",",
                         TensorText("scale", "F8_E8M0", "[2]", "[14,16]"), ",",
                         TensorText("e4", "F8_E4M3FNUZ", "[]", "[16,17]"), ",",
                         TensorText("e5", "F8_E5M2FNUZ", "[0,3]", "[17,17]"), ",",
                         TensorText("u8", "U8", "[1]", "[17,18]"), "}"),
            18);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->tensors.size(), 7u);
  for (const TensorEntry& tensor : layout->tensors) {
    EXPECT_EQ(tensor.type.has_value(), tensor.name[0] != 'f') << tensor.name;
  }
}

TEST(Header, SizesOfPackedElementsAreWholeBytes) {
  ExpectRefused(One("F4", "[3]", "[0,2]"), 2,
                "tensor 'w': F4 [3] takes 4 bits more than whole bytes");
  ExpectRefused(One("F6_E2M3", "[3]", "[0,3]"), 3, "takes 2 bits more than whole bytes");
  ExpectRefused(One("F4", "[2,8]", "[0,16]"), 16, "F4 [2, 8] takes 8 bytes, but offsets 0 to 16");
  ExpectRefused(One("F8_E8M0", "[2]", "[0,3]"), 3, "F8_E8M0 [2] takes 2 bytes");
  // 2^62 bytes fit; 2^67 bits need not.
  ExpectRefused(One("F4", "[9223372036854775806]", "[0,0]"), 0, "takes 4611686018427387903 bytes");
  ExpectRefused(One("F4", "[9223372036854775807,9223372036854775807]", "[0,0]"), 0, "overflows");
}

// A later version of the format may add types; their sizes follow from the offsets.
TEST(Header, TypesOfLaterVersionsTravel) {
  const absl::StatusOr<Layout> layout = Parse(One("F3_NEW", "[8]", "[0,3]"), 3);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_FALSE(layout->tensors[0].type.has_value());
  EXPECT_EQ(layout->tensors[0].bytes(), 3);
}

TEST(Header, ShapesAreWholeNumbers) {
  ExpectRefused(One("U8", "[-1]", "[0,1]"), 1, "shape has -1");
  ExpectRefused(One("U8", "[1.5]", "[0,1]"), 1, "shape has 1.5");
  ExpectRefused(One("U8", "[\"1\"]", "[0,1]"), 1, "shape has \"1\"");
  ExpectRefused(One("U8", "1", "[0,1]"), 1, "shape is no array");
  ExpectRefused(One("U8", "[18446744073709551616]", "[0,1]"), 1, "shape has 1.8");
  ExpectRefused(One("U8", "[9223372036854775808]", "[0,1]"), 1, "shape has 9223372036854775808");
}

TEST(Header, ShapesThatOverflowAreRefused) {
  ExpectRefused(One("F32", "[4611686018427387904]", "[0,0]"), 0, "a size in bytes that overflows");
  // 2^64 bytes, which are 0 in 64 bits.
  ExpectRefused(One("U8", "[4294967296,4294967296]", "[0,0]"), 0, "a size in bytes that overflows");
}

TEST(Header, OffsetsAreInsideOfTheFile) {
  ExpectRefused(One("U8", "[5]", "[0,5]"), 4, "tensor 'w': ends at offset 5, but the file has 4");
  ExpectRefused(One("U8", "[1]", "[4,3]"), 4, "begins at offset 4, behind its end at 3");
  ExpectRefused(One("U8", "[1]", "[0]"), 4, "data_offsets is no array of two");
  ExpectRefused(One("U8", "[1]", "[-1,0]"), 4, "data_offsets has -1");
  ExpectRefused(One("U8", "[1]", "[0,9223372036854775807]"), 4, "ends at offset");
}

TEST(Header, OffsetsAgreeWithTypeAndShape) {
  ExpectRefused(One("F32", "[2]", "[0,4]"), 4,
                "tensor 'w': F32 [2] takes 8 bytes, but offsets 0 to 4 hold 4");
  ExpectRefused(One("F32", "[0]", "[0,4]"), 4, "takes 0 bytes");
}

TEST(Header, TensorsNeitherOverlapNorLeaveHoles) {
  const std::string first = TensorText("a", "U8", "[4]", "[0,4]");
  ExpectRefused(absl::StrCat("{", first, ",", TensorText("b", "U8", "[4]", "[3,7]"), "}"), 7,
                "tensor 'b': begins at offset 3, inside of tensor 'a', which ends at 4");
  ExpectRefused(absl::StrCat("{", first, ",", TensorText("b", "U8", "[4]", "[5,9]"), "}"), 9,
                "tensor 'b': begins at offset 5, and no tensor has the bytes from 4 on");
  ExpectRefused(absl::StrCat("{", first, "}"), 5, "ends at offset 4, but the file has 5");
  ExpectRefused("{}", 1, "ends at offset 0, but the file has 1");
}

TEST(Header, IsReadAsWritten) {
  std::vector<TensorEntry> tensors;
  for (const DataType type : kDataTypes) {
    if (SafetensorsNameOf(type).empty()) continue;
    tensors.push_back({absl::StrCat("layer \"", NameOf(type), "\"\n"), type, {3, 5}});
  }
  tensors.push_back({"none", DataType::kF32, {0}});
  const std::string header = FormatHeader(tensors, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 8, 0u);
  int64_t bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    bytes += ElementCount(tensor.shape) * SizeOf(*tensor.type);
  }
  const absl::StatusOr<Layout> layout =
      ParseHeader(header, static_cast<int64_t>(header.size()) + bytes);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(layout->tensors[i].name, tensors[i].name);
    EXPECT_EQ(layout->tensors[i].type, tensors[i].type);
    EXPECT_EQ(layout->tensors[i].shape, tensors[i].shape);
  }
}

// The processor's time to parse a valid header of so many tensors; the least of some tries.
absl::Duration TimeToParse(int tensors) {
  std::vector<TensorEntry> entries;
  for (int i = 0; i < tensors; ++i) {
    entries.push_back({absl::StrCat("layers.", i, ".weight"), DataType::kU8, {1}});
  }
  const std::string header = FormatHeader(entries, {});
  const auto used = [] {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return absl::DurationFromTimespec(now);
  };
  absl::Duration least = absl::InfiniteDuration();
  for (int attempt = 0; attempt < 3; ++attempt) {
    const absl::Duration begin = used();
    const auto layout = ParseHeader(header, static_cast<int64_t>(header.size()) + tensors);
    EXPECT_EQ(layout->tensors.size(), static_cast<size_t>(tensors));
    least = std::min(least, used() - begin);
  }
  return least;
}

// Checks how the time grows, not its length: once, eight times the tensors took 64 times as long.
TEST(Header, TimeGrowsWithTheTensorsAndNotTheirSquare) {
  const absl::Duration few = TimeToParse(1000);
  const absl::Duration many = TimeToParse(8000);
  EXPECT_LT(absl::FDivDuration(many, few), 24) << few << " and " << many;
}

// Each bit of a header is flipped: the header is refused, or the layout still fits the file.
TEST(Header, NoSingleBitLeadsOutOfTheFile) {
  const std::string header = FormatHeader(
      {{"a", DataType::kBF16, {2, 3}}, {"b", DataType::kF32, {4}}}, {{"format", "pt"}});
  const int64_t file_bytes = static_cast<int64_t>(header.size()) + 28;
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    std::string damaged = header;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const absl::StatusOr<Layout> layout = ParseHeader(damaged, file_bytes);
    if (!layout.ok()) {
      EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    EXPECT_EQ(layout->file_bytes(), file_bytes);
    int64_t end = 0;
    for (const TensorEntry& tensor : layout->tensors) {
      EXPECT_EQ(tensor.begin, end);
      end = tensor.end;
    }
    EXPECT_EQ(end, layout->data_bytes);
  }
}

// --- Files.

std::string WriteTemporary(const std::string& name, const std::string& bytes) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

TEST(FileTest, GivesTheTensorsBytes) {
  const std::string header =
      FormatHeader({{"a", DataType::kU8, {3}}, {"b", DataType::kU8, {2}}}, {});
  const absl::StatusOr<File> file = File::Open(WriteTemporary("good", header + "abcde"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header(), header);
  std::string bytes(5, ' ');
  ASSERT_TRUE(file->Read(0, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(bytes, "abcde");
  ASSERT_TRUE(file->Read(3, absl::MakeSpan(bytes).subspan(0, 2)).ok());
  EXPECT_EQ(bytes.substr(0, 2), "de");
  EXPECT_TRUE(file->CheckUnchanged().ok());
}

TEST(FileTest, ErrorsNameTheFile) {
  EXPECT_EQ(File::Open("/no-such-folder/model").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(File::Open(testing::TempDir()).status().message()),
              HasSubstr("is no regular file"));
  const std::string path = WriteTemporary("empty", "");
  const absl::Status empty = File::Open(path).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(empty.message()), HasSubstr(path));
}

// A page that was cut off is an error of this file, and no SIGBUS of the process.
TEST(FileTest, ReadingATruncatedFileFails) {
  constexpr int64_t kBytes = 1 << 20;
  const std::string header = FormatHeader({{"a", DataType::kU8, {kBytes}}}, {});
  const std::string path = WriteTemporary("cut_pages", header + std::string(kBytes, 'x'));
  const absl::StatusOr<File> file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(header.size()) + kBytes / 2), 0);
  std::string bytes(kBytes / 2, ' ');
  EXPECT_TRUE(file->Read(0, absl::MakeSpan(bytes)).ok());
  for (const int64_t offset : {int64_t{1}, kBytes / 2}) {
    const absl::Status status = file->Read(offset, absl::MakeSpan(bytes));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": was cut while it was read"));
  }
}

TEST(FileTest, DoesNotWaitForTheWriterOfAFifo) {
  const std::string path = testing::TempDir() + "/fifo";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(std::string(File::Open(path).status().message()), HasSubstr("is no regular file"));
}

TEST(FileTest, NoticesThatItWasCut) {
  const std::string header = FormatHeader({{"a", DataType::kU8, {3}}}, {});
  const std::string path = WriteTemporary("cut", header + "abc");
  const absl::StatusOr<File> file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(truncate(path.c_str(), 20), 0);
  EXPECT_EQ(file->CheckUnchanged().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cohort::checkpoint
