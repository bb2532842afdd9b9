#include "coordinator/journal/record_codec.h"

#include <random>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "coordinator/journal/testing/sample_records.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(RecordCodec, RoundTripsEveryKind) {
  std::set<RecordKind> kinds;
  for (const RecordValue& value : SampleValues()) {
    const RecordKind kind = KindOf(value);
    SCOPED_TRACE(RecordKindName(kind));
    kinds.insert(kind);
    const absl::StatusOr<RecordValue> decoded = DecodeRecord(kind, EncodeRecord(value));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(SameValue(value, *decoded));
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<RecordValue::variant>);
}

TEST(RecordCodec, NamesEveryKindOnce) {
  std::set<std::string> names;
  for (int kind = 1; kind <= 10; ++kind)
    names.insert(RecordKindName(static_cast<RecordKind>(kind)));
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_STREQ(RecordKindName(static_cast<RecordKind>(11)), "unknown");
}

TEST(RecordCodec, RefusesAValueOfAnotherKind) {
  const std::string bytes = EncodeRecord(RecordValue(KeyRecord()));
  const absl::Status status = DecodeRecord(RecordKind::kMember, bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("member"));
}

TEST(RecordCodec, RefusesNothingAndAnUnknownKind) {
  for (int kind : {-1, 0, 1, 9, 10, 11, 1000}) {
    EXPECT_EQ(DecodeRecord(static_cast<RecordKind>(kind), "").status().code(),
              absl::StatusCode::kDataLoss)
        << kind;
  }
}

TEST(RecordCodec, RefusesRangesThatNoSetCanHold) {
  for (const RankRange range : {RankRange{-1, 3}, RankRange{4, 3}, RankRange{0, kMaxRank + 1}}) {
    RoundEndRecord record;
    record.alive = {range};
    EXPECT_EQ(DecodeRecord(RecordKind::kRoundEnd, EncodeRecord(record)).status().code(),
              absl::StatusCode::kDataLoss)
        << range.first << "-" << range.last;
  }
}

TEST(RecordCodec, RefusesEnumerationsThatDoNotExist) {
  GroupRecord group;
  group.state = static_cast<GroupState>(5);
  EXPECT_EQ(DecodeRecord(RecordKind::kGroup, EncodeRecord(group)).status().code(),
            absl::StatusCode::kDataLoss);
  MemberRecord member;
  member.state = static_cast<MemberState>(0);
  EXPECT_EQ(DecodeRecord(RecordKind::kMember, EncodeRecord(member)).status().code(),
            absl::StatusCode::kDataLoss);
}

// Rows as the version wrote them that knew neither fingerprints nor late ranks.
TEST(RecordCodec, ReadsTheRowsOfOlderVersions) {
  const auto operation =
      DecodeRecord(RecordKind::kOperation,
                   absl::HexStringToBytes("42180a1001000000000000000200000000000000100f18053007"));
  ASSERT_TRUE(operation.ok()) << operation.status();
  EXPECT_EQ(std::get<OperationRecord>(*operation).first, 5);
  EXPECT_EQ(std::get<OperationRecord>(*operation).number, 7);
  EXPECT_EQ(std::get<OperationRecord>(*operation).fingerprint, 0u);

  const auto name = DecodeRecord(RecordKind::kRoundName,
                                 absl::HexStringToBytes("2210080110011a0473746570200328023802"));
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(std::get<RoundNameRecord>(*name).name, "step");
  EXPECT_EQ(std::get<RoundNameRecord>(*name).ended_through, 3);
  EXPECT_TRUE(std::get<RoundNameRecord>(*name).late.empty());
}

TEST(RecordCodec, RefusesARankThatIsLateForAnOutcomeThatDoesNotExist) {
  RoundNameRecord record;
  RoundNameRecord::Late& late = record.late.emplace_back();
  late.outcome = static_cast<RoundOutcome>(5);
  EXPECT_EQ(DecodeRecord(RecordKind::kRoundName, EncodeRecord(record)).status().code(),
            absl::StatusCode::kDataLoss);
}

// Damaged bytes are an error, or decode to a value that can be encoded again.
TEST(RecordCodec, SurvivesDamagedBytes) {
  std::mt19937 random(20240607);
  for (const RecordValue& value : SampleValues()) {
    const std::string bytes = EncodeRecord(value);
    if (bytes.size() > 4096) continue;
    for (int attempt = 0; attempt < 2000; ++attempt) {
      std::string damaged = bytes;
      const int changes = 1 + random() % 3;
      for (int change = 0; change < changes && !damaged.empty(); ++change) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      if (random() % 4 == 0) damaged.resize(random() % (damaged.size() + 1));
      const absl::StatusOr<RecordValue> decoded = DecodeRecord(KindOf(value), damaged);
      if (decoded.ok()) {
        EXPECT_FALSE(EncodeRecord(*decoded).empty());
      } else {
        EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
      }
    }
  }
}

TEST(RecordCodec, DescribesARowWithItsBytesEscaped) {
  EXPECT_EQ(DescribeRow({"acme", "train\n"}, RecordKind::kKey, std::string("a\0z", 3)),
            "tenant \"acme\" group \"train\\n\" kind key (6) id \"a\\x00z\"");
}

TEST(RecordCodec, CutsALongId) {
  EXPECT_LT(DescribeRow({"t", "g"}, RecordKind::kKey, std::string(100000, 'x')).size(), 300u);
}

}  // namespace
}  // namespace cohort::coordinator
