#include "client/parallel/queue/ring/wire_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

TEST(WireText, WholeCharactersStay) {
  const std::string text = "plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80\n";
  EXPECT_EQ(WireText(text, 100), text);
  EXPECT_EQ(WireText("", 100), "");
}

TEST(WireText, IsCutBetweenCharacters) {
  const std::string text = "ab\xE2\x82\xAC";
  EXPECT_EQ(WireText(text, 5), text);
  for (const size_t most : {2, 3, 4}) EXPECT_EQ(WireText(text, most), "ab") << most;
  EXPECT_EQ(WireText(text, 1), "a");
  EXPECT_EQ(WireText(text, 0), "");
}

TEST(WireText, InvalidBytesAreReplaced) {
  EXPECT_EQ(WireText("a\xFF\xFE", 100), "a??");
  EXPECT_EQ(WireText("\x80x", 100), "?x");
  EXPECT_EQ(WireText("\xE2\x82", 100), "??");            // cut before
  EXPECT_EQ(WireText("\xC0\xAF", 100), "??");            // longer than need be
  EXPECT_EQ(WireText("\xED\xA0\x80", 100), "???");       // half of a pair
  EXPECT_EQ(WireText("\xF4\x90\x80\x80", 100), "????");  // beyond the last
  EXPECT_EQ(WireText(std::string("a\0b", 3), 100), std::string("a\0b", 3));
}

}  // namespace
}  // namespace cohort::parallel
