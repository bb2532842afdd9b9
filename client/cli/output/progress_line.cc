#include "client/cli/output/progress_line.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/text/utf8.h"

namespace cohort::cli {
namespace {

constexpr absl::string_view kClearLine = "\r\x1b[K";

}  // namespace

void ProgressLine::Show(absl::string_view text) {
  if (printer_.err_width() <= 0) return;
  const auto width = static_cast<size_t>(std::max(printer_.err_width() - 1, 1));
  printer_.RemarkText(absl::StrCat(kClearLine, CutUtf8(text, width)));
  shown_ = true;
}

void ProgressLine::Clear() {
  if (shown_) printer_.RemarkText(kClearLine);
  shown_ = false;
}

}  // namespace cohort::cli
