#include "client/cli/output/printer.h"

#include <cerrno>

namespace cohort::cli {

Printer::Printer(std::ostream& out, std::ostream& err, Widths widths)
    : out_(out), err_(err), widths_(widths) {}

void Printer::PrintJson(const Json& json) { Write(Dump(json) + "\n"); }

void Printer::PrintText(absl::string_view text) { Write(text); }

void Printer::PrintValue(absl::string_view bytes) {
  Write(bytes);
  if (widths_.out > 0) Write("\n");
}

void Printer::Remark(absl::string_view line) {
  err_ << line << '\n';
  err_.flush();
}

void Printer::RemarkText(absl::string_view text) {
  err_ << text;
  err_.flush();
}

void Printer::Write(absl::string_view bytes) {
  if (out_errno_ != 0) return;
  errno = 0;
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out_.flush();
  if (!out_.good()) out_errno_ = errno != 0 ? errno : EIO;
}

}  // namespace cohort::cli
