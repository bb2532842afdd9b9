#include "tests/benchmark/rendezvous/peer_systems/tcpstore.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/harness/child_process.h"

namespace cohort::benchmark {
namespace {

constexpr int kMaxMembers = 256;

absl::StatusOr<std::string> Ask(ChildProcess& script, const std::string& command) {
  COHORT_RETURN_IF_ERROR(script.WriteLine(command));
  return script.ReadLine();
}

// The script's processes for one configuration; they end with it.
class Members {
 public:
  explicit Members(std::shared_ptr<ChildProcess> script) : script_(std::move(script)) {}
  ~Members() { Ask(*script_, "teardown").IgnoreError(); }

  absl::StatusOr<Sample> Run(const std::string& command) {
    COHORT_ASSIGN_OR_RETURN(const std::string answer, Ask(*script_, command));
    double us = 0;
    if (!absl::SimpleAtod(answer, &us)) return absl::InternalError(answer);
    Sample sample;
    sample.latencies.push_back(absl::Microseconds(us));
    return sample;
  }

 private:
  const std::shared_ptr<ChildProcess> script_;
};

class TcpStore final : public Implementation {
 public:
  explicit TcpStore(std::shared_ptr<ChildProcess> script) : script_(std::move(script)) {}

  std::string name() const override { return "tcpstore-stateless"; }

  absl::StatusOr<Operation> Prepare(const Config& config) override {
    std::string command;
    if (config.kind == OperationKind::kBarrier) command = "barrier";
    if (config.kind == OperationKind::kAllGather)
      command = absl::StrCat("all_gather ", config.bytes);
    if (config.kind == OperationKind::kHandoff) command = absl::StrCat("handoff ", config.bytes);
    if (command.empty() || config.members > kMaxMembers ||
        config.connections != Connections::kPerMember) {
      return absl::UnimplementedError("not a configuration of the stateless group");
    }
    COHORT_RETURN_IF_ERROR(Ask(*script_, absl::StrCat("setup ", config.members)).status());
    auto members = std::make_shared<Members>(script_);
    return Operation([members, command] { return members->Run(command); });
  }

 private:
  const std::shared_ptr<ChildProcess> script_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Implementation>> StartTcpStore(const std::string& python,
                                                              const std::string& script,
                                                              const std::string& scratch) {
  ChildProcessOptions options;
  options.command = {python, script};
  options.log_path = absl::StrCat(scratch, "/tcpstore.log");
  options.pipes = true;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(options));
  return std::make_unique<TcpStore>(std::move(process));
}

}  // namespace cohort::benchmark
