#include "client/collective/path_note.h"

#include "gtest/gtest.h"

namespace cohort::client {
namespace {

TEST(PathNoteTest, ComesBackAsItWas) {
  const PathNote note = {3, {{0, 2}, {1}}, {"rank 1 is a process of user 7"}};
  const std::optional<PathNote> read = DecodePathNote(EncodePathNote(note));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->generation, 3);
  EXPECT_EQ(read->hosts, note.hosts);
  EXPECT_EQ(read->why_not, note.why_not);
}

TEST(PathNoteTest, WhatIsNoneIsNone) {
  for (const char* bytes :
       {"", "{}", "[1]", "\xff", R"({"generation":1,"hosts":[["a"]],"why_not":[]})",
        R"({"generation":1,"hosts":3,"why_not":[]})"}) {
    EXPECT_FALSE(DecodePathNote(bytes).has_value()) << bytes;
  }
}

TEST(PathNoteTest, TextThatIsNoUtf8IsCarriedAllTheSame) {
  EXPECT_TRUE(DecodePathNote(EncodePathNote({1, {{0}}, {"\xff"}})).has_value());
}

TEST(PathNoteTest, IsReadByPeople) {
  EXPECT_EQ(FormatPathNote({1, {{0}}, {}}), "one rank alone");
  EXPECT_EQ(FormatPathNote({1, {{0, 1, 2}}, {}}), "shared memory: ranks 0-2");
  EXPECT_EQ(FormatPathNote({1, {{0}, {1}}, {}}), "TCP between all ranks");
  EXPECT_EQ(FormatPathNote({1, {{0, 1}, {2, 4}, {3}}, {}}),
            "shared memory: ranks 0-1; ranks 2,4. TCP between all others");
}

}  // namespace
}  // namespace cohort::client
