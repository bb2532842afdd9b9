#include "client/parallel/tensor_map/entries/entries.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/parallel/tensor_map/testing/random_map.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

uint32_t Seed() {
  const char* const given = std::getenv("COHORT_TEST_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                         : std::random_device()();
  std::cerr << "COHORT_TEST_SEED=" << seed << "\n";
  return seed;
}

TensorMap FilledBack(DecodedMap decoded, const EncodedMap& encoded) {
  EXPECT_EQ(decoded.tensors().size(), encoded.tensors.size());
  for (size_t i = 0; i < encoded.tensors.size(); ++i) {
    EXPECT_EQ(decoded.tensors()[i].shape, encoded.tensors[i].shape());
    EXPECT_EQ(decoded.tensors()[i].type, encoded.tensors[i].type());
    decoded.Fill(i, encoded.tensors[i]);
  }
  return std::move(decoded).Take();
}

void ExpectRefused(const absl::Status& status, absl::string_view what) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), what)) << status;
}

// Alternately nested maps and lists.
Value Nested(int levels) {
  Value value = "innermost";
  for (int i = 0; i < levels; ++i) {
    value = i % 2 == 0 ? Value(List{1, value}) : Value(TensorMap{{"key", value}});
  }
  return value;
}

TEST(EntriesTest, EntriesRoundTrip) {
  std::mt19937 random(Seed());
  for (int round = 0; round < 300; ++round) {
    const TensorMap map = RandomMap(random, 4, [&random] { return RandomHostTensor(random); });
    const absl::StatusOr<EncodedMap> encoded = EncodeMap(map);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    absl::StatusOr<DecodedMap> decoded = DecodedMap::Parse(encoded->entries);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(Describe(FilledBack(*std::move(decoded), *encoded)), Describe(map));
  }
}

TEST(EntriesTest, PlacesAndPartsTravel) {
  const Tensor on_gpu(reinterpret_cast<void*>(64), DataType::kBF16, {4, 3}, nullptr,
                      Device::Cuda(3));
  const TensorMap map = {{"list", List{TensorMap{{"a%b", on_gpu}}}}};
  const auto encoded = EncodeMap(map, [](WayTo way, const Tensor&) {
    EXPECT_EQ(way(), (Path{"list", "0", "a%b"}));
    return 6;
  });
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const auto decoded = DecodedMap::Parse(encoded->entries);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->tensors().size(), 1u);
  EXPECT_TRUE(decoded->tensors()[0].on_gpu);
  EXPECT_EQ(decoded->tensors()[0].parts, 6);
  EXPECT_EQ(decoded->tensors()[0].sent_count(), 2);
  EXPECT_EQ(decoded->tensors()[0].ToString(), "bf16 [4, 3] on a GPU in 6 parts");
}

TEST(EntriesTest, TruncatedEntriesAreRejected) {
  std::mt19937 random(Seed());
  const TensorMap map = RandomMap(random, 4, [&random] { return RandomHostTensor(random); });
  const auto encoded = EncodeMap(map);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  for (size_t size = 0; size < encoded->entries.size(); ++size) {
    ExpectRefused(DecodedMap::Parse(absl::string_view(encoded->entries).substr(0, size)).status(),
                  "the entries");
  }
  ExpectRefused(DecodedMap::Parse(encoded->entries + '\0').status(), "1 bytes behind their end");
}

TEST(EntriesTest, AnyBytesAreReadOrRefused) {
  std::mt19937 random(Seed());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(1, '\1');
    if (round % 2 == 0) {
      const TensorMap map = RandomMap(random, 3, [&random] { return RandomHostTensor(random); });
      bytes = EncodeMap(map)->entries;
      for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    } else {
      for (size_t left = random() % 64; left > 0; --left) {
        // Small numbers are nested deeper.
        bytes.push_back(static_cast<char>(random() % (random() % 4 == 0 ? 256 : 12)));
      }
    }
    const auto decoded = DecodedMap::Parse(bytes);
    if (!decoded.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(decoded.status()) ||
                  absl::IsResourceExhausted(decoded.status()))
          << decoded.status();
      continue;
    }
    for (const TensorEntry& tensor : decoded->tensors()) {
      EXPECT_GE(tensor.bytes(), 0);
      EXPECT_LE(tensor.bytes(), kMaxTensorBytes);
      EXPECT_EQ(tensor.sent_count() * tensor.parts, tensor.count());
    }
  }
}

TEST(EntriesTest, ClaimsThatDoNotHoldTakeNoMemory) {
  // A list of 2^60 values in 12 bytes, and a text of as many.
  const std::string list = std::string("\1\1\1k\6\x80\x80\x80\x80\x80\x80\x80\x80\x10", 14);
  ExpectRefused(DecodedMap::Parse(list).status(), "should have 1152921504606846976 more values");
  const std::string text = std::string("\1\1\1k\4\x80\x80\x80\x80\x80\x80\x80\x80\x10", 14);
  ExpectRefused(DecodedMap::Parse(text).status(), "should have 1152921504606846976 more bytes");
  // A tensor of 2^62 elements of 8 bytes.
  const std::string tensor =
      std::string("\1\1\1k\7\x08\0\1\1\x80\x80\x80\x80\x80\x80\x80\x80\x40", 18);
  EXPECT_TRUE(absl::IsResourceExhausted(DecodedMap::Parse(tensor).status()))
      << DecodedMap::Parse(tensor).status();
}

TEST(EntriesTest, KeysAreNotRepeated) {
  ExpectRefused(DecodedMap::Parse(absl::string_view("\1\2\1k\0\1k\0", 8)).status(),
                "have a key twice");
}

TEST(EntriesTest, SenderAndReceiverHaveTheSameLimit) {
  // The map itself is a level.
  const auto most = EncodeMap({{"top", Nested(kMaxDepth - 1)}});
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_TRUE(DecodedMap::Parse(most->entries).ok());
  ExpectRefused(EncodeMap({{"top", Nested(kMaxDepth)}}).status(), "entry 'top'/");
  ExpectRefused(EncodeMap({{"top", Nested(kMaxDepth)}}).status(), "nested deeper than 32");
  // By hand: lists of one list each.
  std::string deeper("\1\1\0", 3);
  for (int i = 0; i < kMaxDepth; ++i) deeper += "\6\1";
  deeper += std::string("\6\0", 2);
  ExpectRefused(DecodedMap::Parse(deeper).status(), "nested deeper than 32");

  EXPECT_TRUE(EncodeMap({{"top", List(kMaxValues - 1)}}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(EncodeMap({{"top", List(kMaxValues)}}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(
      EncodeMap({{"top", std::string(size_t{kMaxEntryBytes}, 'a')}}).status()));
}

TEST(EntriesTest, SaysWhichTensorCannotGo) {
  const Tensor without_memory(nullptr, DataType::kF32, {2});
  ExpectRefused(EncodeMap({{"a", List{1, without_memory}}}).status(),
                "entry 'a'/'1' f32 [2] has no memory");
  const Tensor six = Tensor::Zeros(DataType::kF32, {6});
  ExpectRefused(EncodeMap({{"six", six}}, [](WayTo, const Tensor&) { return 4; }).status(),
                "entry 'six' is f32 [6], whose 6 elements do not divide into 4 parts");
  const Tensor empty(nullptr, DataType::kF32, {0, 5});
  EXPECT_TRUE(EncodeMap({{"empty", empty}}).ok());
}

TEST(EntriesTest, ValuesAloneHaveNoTensors) {
  std::mt19937 random(Seed());
  for (int round = 0; round < 100; ++round) {
    const Value value = RandomMap(random, 3, nullptr);
    const auto encoded = EncodeValue(value);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    const auto decoded = DecodeValue(*encoded);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(Describe(*decoded), Describe(value));
  }
  const Value tensor = TensorMap{{"t", Tensor::Zeros(DataType::kF32, {2})}};
  ExpectRefused(EncodeValue(tensor).status(), "entry 't' is a tensor");
  ExpectRefused(DecodeValue(absl::string_view("\1\7\1\0\1\0", 6)).status(), "have a tensor");
}

}  // namespace
}  // namespace cohort::parallel
