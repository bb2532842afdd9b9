// The line on standard error while a call waits for others.
#ifndef COHORT_CLIENT_CLI_OUTPUT_WAITING_LINE_H_
#define COHORT_CLIENT_CLI_OUTPUT_WAITING_LINE_H_

#include <string>

#include "client/cli/output/printer.h"
#include "client/cli/output/progress_line.h"
#include "client/rendezvous/report/report.h"

namespace cohort::cli {

// On a terminal it is one line that is overwritten, cut to the terminal's width. Elsewhere it is a
// new line whenever the present or missing members change, or the coordinator goes away. Confined
// to one thread; borrows the printer.
class WaitingLine {
 public:
  // `what` is the object of the wait, such as "barrier step".
  WaitingLine(Printer& printer, std::string what);

  void Update(const client::MissingReport& report);
  // While the coordinator does not answer, the missing members are unknown.
  void Update(const client::AwayReport& away);

 private:
  // Two states with the same `changed` count as one.
  void Show(const std::string& text, const std::string& changed);

  Printer& printer_;
  const std::string what_;
  std::string last_change_;
  ProgressLine line_;  // on a terminal
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_OUTPUT_WAITING_LINE_H_
