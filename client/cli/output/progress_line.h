// The progress of a long command, on a terminal.
#ifndef COHORT_CLIENT_CLI_OUTPUT_PROGRESS_LINE_H_
#define COHORT_CLIENT_CLI_OUTPUT_PROGRESS_LINE_H_

#include "absl/strings/string_view.h"
#include "client/cli/output/printer.h"

namespace cohort::cli {

// One line of standard error that is overwritten; nothing if standard error is no terminal.
// Confined to one thread; borrows the printer.
class ProgressLine {
 public:
  explicit ProgressLine(Printer& printer) : printer_(printer) {}
  // Clears the line.
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(absl::string_view text);
  // Called before a result is printed.
  void Clear();

 private:
  Printer& printer_;
  bool shown_ = false;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_OUTPUT_PROGRESS_LINE_H_
