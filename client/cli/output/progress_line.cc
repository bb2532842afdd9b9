#include "client/cli/output/progress_line.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace cohort::cli {
namespace {

constexpr absl::string_view kClearLine = "\r\x1b[K";

}  // namespace

void ProgressLine::Show(absl::string_view text) {
  if (printer_.err_width() <= 1) return;
  const size_t width = static_cast<size_t>(printer_.err_width() - 1);
  printer_.RemarkText(absl::StrCat(kClearLine, text.substr(0, width)));
  shown_ = true;
}

void ProgressLine::Clear() {
  if (shown_) printer_.RemarkText(kClearLine);
  shown_ = false;
}

}  // namespace cohort::cli
