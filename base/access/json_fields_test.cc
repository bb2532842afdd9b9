#include "base/access/json_fields.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

std::string Fault(const std::string& text) {
  const auto parsed = ParseStrictJson(text);
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

// `levels` lists in each other, in an object.
std::string Nested(int levels) {
  return absl::StrCat(R"({"a":)", std::string(static_cast<size_t>(levels), '['),
                      std::string(static_cast<size_t>(levels), ']'), "}");
}

TEST(ParseStrictJsonTest, TakesAnObject) {
  const auto parsed = ParseStrictJson(R"( {"a": {"x": 1}, "b": [{"x": 2}, {"x": 3}]} )");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->at("b").size(), 2u);
  EXPECT_EQ(Fault(Nested(static_cast<int>(kMaxJsonDepth) - 1)), "");
}

TEST(ParseStrictJsonTest, RefusesOtherTexts) {
  for (const char* const text : {"", "{", "{}{}", "{'a': 1}", "{\"a\": 1e999}", "{\"a\": NaN}",
                                 "{\"a\": \"\xff\"}", "// a\n{}", "{\"a\": \"\\ud800\"}"}) {
    EXPECT_EQ(Fault(text), "is not JSON") << text;
  }
  for (const char* const text : {"[]", "1", "null", "\"a\""}) {
    EXPECT_EQ(Fault(text), "is not an object") << text;
  }
}

TEST(ParseStrictJsonTest, RefusesEqualKeys) {
  EXPECT_EQ(Fault(R"({"a": 1, "a": 1})"), "has a key twice");
  EXPECT_EQ(Fault(R"({"b": [{"a": 1, "\u0061": 2}]})"), "has a key twice");
}

TEST(ParseStrictJsonTest, RefusesDeepTexts) {
  EXPECT_THAT(Fault(Nested(static_cast<int>(kMaxJsonDepth))), HasSubstr("more than 16 levels"));
  EXPECT_THAT(Fault(Nested(2000)), HasSubstr("more than 16 levels"));
  EXPECT_THAT(Fault(std::string(1 << 20, '[')), HasSubstr("more than 16 levels"));
}

}  // namespace
}  // namespace cohort
