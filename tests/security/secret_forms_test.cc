#include "tests/security/secret_forms.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

constexpr absl::string_view kSecret(
    "\x00\x9a\xff\x10\x41\x42\x43\x7f\x80\x01\xfe\xfb\xf3\x22\x5c\x0a", 16);

TEST(SecretFormsTest, FindsEachForm) {
  const auto in = [](absl::string_view text) {
    return FormIn(absl::StrCat("a ", text, " b"), kSecret);
  };
  EXPECT_EQ(in(kSecret), "as it is");
  EXPECT_EQ(in(kSecret.substr(8)), "as it is");
  EXPECT_EQ(in(absl::BytesToHexString(kSecret)), "in hex");
  EXPECT_EQ(in(absl::AsciiStrToUpper(absl::BytesToHexString(kSecret))), "in hex");
  EXPECT_EQ(in(absl::BytesToHexString(std::string(kSecret.rbegin(), kSecret.rend()))), "in hex");
  EXPECT_EQ(in(absl::CEscape(kSecret)), "escaped");
  EXPECT_EQ(in(absl::CHexEscape(kSecret)), "escaped");
  for (size_t before = 0; before < 5; ++before) {
    const std::string message = absl::StrCat(std::string(before, 'x'), kSecret, "behind");
    EXPECT_EQ(in(absl::Base64Escape(message)), "in base64") << before;
    EXPECT_EQ(in(absl::WebSafeBase64Escape(message)), "in base64") << before;
  }
}

TEST(SecretFormsTest, OtherTextHasNone) {
  EXPECT_EQ(FormIn("", kSecret), "");
  EXPECT_EQ(FormIn("session 009a ff10 of rank-0", kSecret), "");
  EXPECT_EQ(FormIn(absl::Base64Escape(std::string(64, 'x')), kSecret), "");
}

}  // namespace
}  // namespace cohort::testing
