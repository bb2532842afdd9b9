#include "tests/benchmark/gpu/torch_implementation.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tests/failure/testing/child_process.h"

namespace cohort::benchmark {
namespace {

using testing::ChildProcess;

// Long, because the process imports PyTorch first.
constexpr absl::Duration kTimeout = absl::Minutes(2);

class TorchImplementation final : public DeviceImplementation {
 public:
  TorchImplementation(std::string name, std::unique_ptr<ChildProcess> process)
      : name_(std::move(name)), process_(std::move(process)) {}

  const std::string& name() const override { return name_; }
  absl::Status Prepare(Collective operation, int64_t bytes) override {
    return Ask(absl::StrCat("prepare ", NameOf(operation), " ", bytes), 0).status();
  }
  absl::StatusOr<absl::Duration> RunBlocking(int calls) override {
    COHORT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                            Ask(absl::StrCat("blocking ", calls), 1));
    return absl::Seconds(seconds[0]);
  }
  absl::StatusOr<Queued> RunQueued(int calls) override {
    COHORT_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                            Ask(absl::StrCat("queued ", calls), 2));
    return Queued{absl::Seconds(seconds[0]), absl::Seconds(seconds[1])};
  }
  absl::Status Verify() override { return Ask("verify", 0).status(); }

  // Waits for the answer with which the process begins.
  absl::Status Greet() { return Answer(0).status(); }

 private:
  absl::StatusOr<std::vector<double>> Ask(const std::string& command, size_t numbers) {
    process_->WriteLine(command);
    return Answer(numbers);
  }
  absl::StatusOr<std::vector<double>> Answer(size_t numbers) {
    COHORT_ASSIGN_OR_RETURN(const std::string line, process_->ReadLine(kTimeout));
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    std::vector<double> result;
    for (size_t i = 1; i < words.size(); ++i) {
      double number = 0;
      if (absl::SimpleAtod(words[i], &number)) result.push_back(number);
    }
    if (words[0] == "ok" && result.size() == numbers) return result;
    return absl::InternalError(absl::StrCat(name_, ": ", line));
  }

  const std::string name_;
  const std::unique_ptr<ChildProcess> process_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceImplementation>> MakeTorchImplementation(
    const TorchOptions& options, TorchBackend backend, int64_t most_bytes) {
  const bool is_nccl = backend == TorchBackend::kNccl;
  auto implementation = std::make_unique<TorchImplementation>(
      is_nccl ? "torch" : "cohort-torch",
      std::make_unique<ChildProcess>(std::vector<std::string>{
          options.python, options.script, absl::StrCat(most_bytes), is_nccl ? "nccl" : "cohort"}));
  COHORT_RETURN_IF_ERROR(implementation->Greet());
  return implementation;
}

}  // namespace cohort::benchmark
