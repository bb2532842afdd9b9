// The `cohort` command: what people and scripts ask of a coordinator and of groups. See
// client/cli/README.md.
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "client/cli/clients/clients.h"
#include "client/cli/context/interrupt.h"
#include "client/cli/output/printer.h"
#include "client/cli/tool.h"
#include "grpc/support/log.h"
#include "worker/cli/library_group_maker.h"
#include "worker/cli/library_nccl_ras_client.h"

namespace {

// 0 when it is no terminal.
int TerminalWidth(int fd) {
  if (isatty(fd) == 0) return 0;
  winsize size = {};
  const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// gRPC logs each attempt to connect that fails, and the error of the command has the same reason.
// Before it aborts the process, gRPC logs the assertion that failed.
void LogAssertionsOfGrpc(gpr_log_func_args* args) {
  if (!absl::StartsWithIgnoreCase(args->message, "assertion failed")) return;
  std::fprintf(stderr, "%s:%d: %s\n", args->file, args->line, args->message);
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away is an error of the next write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(LogAssertionsOfGrpc);
  cohort::cli::Interrupt interrupt;

  const std::unique_ptr<cohort::cli::Clients> clients = cohort::cli::MakeLibraryClients();
  const std::unique_ptr<cohort::cli::GroupMaker> groups = cohort::worker::MakeGroupMaker();
  const std::unique_ptr<cohort::cli::NcclRasClient> nccl = cohort::worker::MakeNcclRasClient();
  cohort::cli::Printer printer(std::cout, std::cerr,
                               {TerminalWidth(STDOUT_FILENO), TerminalWidth(STDERR_FILENO)});
  cohort::cli::Environment environment;
  environment.clients = clients.get();
  environment.groups = groups.get();
  environment.nccl = nccl.get();
  environment.clock = &cohort::Clock::Steady();
  environment.in = &std::cin;
  environment.printer = &printer;
  environment.sleep = absl::SleepFor;
  if (const char* coordinator = std::getenv("COHORT_COORDINATOR")) {
    environment.coordinator = coordinator;
  }
  if (const char* rank = std::getenv("COHORT_RANK")) environment.rank = rank;
  environment.set_on_interrupt = [&interrupt](std::function<void()> on_interrupt) {
    interrupt.Set(std::move(on_interrupt));
  };
  return static_cast<int>(cohort::cli::RunTool(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), environment));
}
