// Where the tool's words go: results to standard output, for people or as JSON; remarks to standard
// error.
#ifndef COHORT_CLIENT_CLI_OUTPUT_PRINTER_H_
#define COHORT_CLIENT_CLI_OUTPUT_PRINTER_H_

#include <ostream>

#include "absl/strings/string_view.h"
#include "client/cli/output/report_json.h"

namespace cohort::cli {

// Confined to one thread; borrows its streams. Flushes after every call, so that a pipe's reader
// sees each event as it happens and a lost reader is noticed at once.
class Printer {
 public:
  // How a terminal differs from a file: its width in columns, 0 where there is no terminal.
  struct Widths {
    int out = 0;
    int err = 0;
  };
  Printer(std::ostream& out, std::ostream& err, Widths widths);

  int err_width() const { return widths_.err; }

  // One JSON value on one line.
  void PrintJson(const Json& json);
  // Text as it is.
  void PrintText(absl::string_view text);
  // A value of the user's, as it is; a newline is added on a terminal only, so that files and pipes
  // get exact bytes.
  void PrintValue(absl::string_view bytes);

  // One line to standard error.
  void Remark(absl::string_view line);
  // As it is to standard error.
  void RemarkText(absl::string_view text);

  // Whether everything meant for standard output was taken.
  bool out_ok() const { return out_errno_ == 0; }
  // The errno of the first write that failed (EPIPE: the reader has gone); 0: no write failed.
  int out_errno() const { return out_errno_; }

 private:
  void Write(absl::string_view bytes);

  std::ostream& out_;
  std::ostream& err_;
  const Widths widths_;
  int out_errno_ = 0;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_OUTPUT_PRINTER_H_
