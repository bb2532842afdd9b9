#include "base/text/printable.h"

#include <string>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(PrintableTest, KeepsTextOfAllLanguages) {
  for (const char* text : {"", "plain ~!", "back\\slash", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
                           "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",  // Hebrew needs no controls
                           "\xc2\xa0"}) {
    EXPECT_TRUE(IsPrintable(text)) << text;
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, EscapesWhatSteersTheDisplay) {
  const struct {
    std::string text;
    const char* expected;
  } cases[] = {
      {std::string("a\0b", 3), "a\\x00b"},
      {"\x1b[31m\n\r\t\x7f", "\\x1b[31m\\x0a\\x0d\\x09\\x7f"},
      {"\xc2\x80\xc2\x9b", "\\xc2\\x80\\xc2\\x9b"},  // U+0080, U+009B
      {"\xd8\x9c", "\\xd8\\x9c"},                    // U+061C
      {"\xe2\x80\x8b", "\\xe2\\x80\\x8b"},           // U+200B
      {"\xe2\x80\x8e\xe2\x80\x8f", "\\xe2\\x80\\x8e\\xe2\\x80\\x8f"},
      {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},  // U+2028
      {"txt\xe2\x80\xae"
       "exe",
       "txt\\xe2\\x80\\xae"
       "exe"},                                                         // U+202E
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\xe2\\x81\\xa6\\xe2\\x81\\xa9"},  // U+2066, U+2069
      {"\xef\xbb\xbf", "\\xef\\xbb\\xbf"},                             // U+FEFF
  };
  for (const auto& one : cases) {
    EXPECT_FALSE(IsPrintable(one.text)) << one.expected;
    EXPECT_EQ(Printable(one.text), one.expected);
  }
}

TEST(PrintableTest, EscapesBytesThatAreNoUtf8) {
  for (const char* text : {"\xff", "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf0\x8f\xbf\xbf", "\xe2\x82"}) {
    EXPECT_FALSE(IsPrintable(text));
    EXPECT_EQ(Printable(text).size(), 4 * std::string(text).size());
  }
}

TEST(PrintableTest, EscapingTwiceIsEscapingOnce) {
  const std::string once = Printable("\x1b\xff\\x1b\xe2\x80\xae");
  EXPECT_TRUE(IsPrintable(once));
  EXPECT_EQ(Printable(once), once);
  std::string text = "\n";
  MakePrintable(text);
  MakePrintable(text);
  EXPECT_EQ(text, "\\x0a");
}

}  // namespace
}  // namespace cohort
