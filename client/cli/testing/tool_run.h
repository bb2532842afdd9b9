// Runs the tool against the fake coordinator, for tests.
#ifndef COHORT_CLIENT_CLI_TESTING_TOOL_RUN_H_
#define COHORT_CLIENT_CLI_TESTING_TOOL_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "client/cli/clients/group_maker.h"
#include "client/cli/clients/nccl_ras_client.h"
#include "client/cli/output/printer.h"
#include "client/cli/testing/fake_clients.h"
#include "client/cli/tool.h"
#include "client/collective/testing/lone_group.h"

namespace cohort::cli {

// Time passes when a thread sleeps.
class SleepClock : public Clock {
 public:
  Instant Now() const override { return now_; }
  void Sleep(absl::Duration duration) { now_ += duration; }

 private:
  Instant now_ = absl::UnixEpoch();
};

struct ToolResult {
  int code = 0;
  std::string out;
  std::string err;
};

// Makes groups of one rank.
class LoneGroups : public GroupMaker {
 public:
  // The requests, in order.
  std::vector<GroupRequest> requests;
  // When not OK, the answer.
  absl::Status error;
  // Reported while a group forms.
  std::optional<client::MissingReport> waiting_to_join;
  // For each group made: see LoneGroup.
  int64_t spoils_call = 0;
  absl::Status call_error;
  int64_t copies = 0;
  absl::StatusOr<int> gpus = absl::FailedPreconditionError("there is no GPU here");

  absl::StatusOr<std::unique_ptr<client::Group>> Make(const GroupRequest& request) override {
    requests.push_back(request);
    if (!error.ok()) return error;
    if (waiting_to_join.has_value()) request.on_waiting(*waiting_to_join);
    auto group = std::make_unique<client::LoneGroup>();
    group->spoils_call = spoils_call;
    group->error = call_error;
    return group;
  }
  // Its GPUs' memory is the host's.
  absl::Status Copy(const Tensor& from, const Tensor& to) override {
    ++copies;
    return CopyTensor(from, to);
  }
  absl::StatusOr<int> CountGpus() override { return gpus; }
};

// NCCL's threads on this machine.
class FakeNccl : public NcclRasClient {
 public:
  // The answer.
  absl::StatusOr<NcclRasSummary> answer = absl::UnavailableError("connection refused");
  // The address that was asked, and the timeout.
  std::string address;
  absl::Duration timeout;

  absl::StatusOr<NcclRasSummary> Ask(const std::string& at, absl::Duration how_long) override {
    address = at;
    timeout = how_long;
    return answer;
  }
};

class ToolRun {
 public:
  FakeClients fake;
  LoneGroups groups;
  FakeNccl nccl;
  std::string input;
  std::string coordinator_variable;
  std::string rank_variable;
  Printer::Widths widths;
  // How often something was set to be done on interrupt (+1), and cleared (-1), over all runs.
  int interrupt_balance = 0;
  int interrupts_set = 0;
  // Passes when a command joins.
  absl::Duration join_takes;

  ToolResult operator()(const std::vector<std::string>& arguments) {
    std::ostringstream out;
    std::ostringstream err;
    const int code = Run(arguments, out, err);
    return {code, out.str(), err.str()};
  }

  int Run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
    std::istringstream in(input);
    Printer printer(out, err, widths);
    SleepClock clock;
    Environment environment;
    fake.on_join = [this, &clock] { clock.Sleep(join_takes); };
    environment.sleep = [&clock](absl::Duration duration) { clock.Sleep(duration); };
    environment.clients = &fake;
    environment.groups = &groups;
    environment.nccl = &nccl;
    environment.clock = &clock;
    environment.in = &in;
    environment.printer = &printer;
    environment.coordinator = coordinator_variable;
    environment.rank = rank_variable;
    environment.set_on_interrupt = [this](std::function<void()> on_interrupt) {
      interrupt_balance += on_interrupt ? 1 : -1;
      interrupts_set += on_interrupt ? 1 : 0;
    };
    return static_cast<int>(RunTool(arguments, environment));
  }
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TESTING_TOOL_RUN_H_
