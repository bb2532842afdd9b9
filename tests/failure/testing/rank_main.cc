// A rank that moves tensors, in a process of its own, so that a test can kill or stop it.
//
//   rank_main ADDRESS GROUP RANK SIZE [host=NAME] [timeout_ms=N] [lease_ms=N] [member=NAME]
//             [attached=WORKER] [remote=WORKER] [uid=N]
//
// With a uid the process gives up being root and becomes that user's. It is the rank itself, or it
// is attached to the worker at that address, or calls it.
//
// Prints `joined RANK SIZE GENERATION PATH`, where PATH is how it reaches the next rank, or `failed
// CODE TEXT` and ends. Then runs commands, one in a line, and prints `CODE TEXT` for each:
//
//   once OPERATION BYTES MEMORY    one operation, and verifies its result
//   loop OPERATION BYTES MEMORY    until one fails; prints `running` after a few
//   rejoin [TIMEOUT_MS]
//   child                          starts one that keeps this process's descriptors open
//   leave                          ends the program
//
// OPERATION: all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, exchange. MEMORY:
// registered or plain. Ends with its standard input, so that it never outlives its test.
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/collective/remote/remote_group.h"
#include "worker/group/attached_group.h"
#include "worker/group/local_group.h"

namespace cohort {
namespace {

using client::Group;
using client::RemoteGroupOptions;
using worker::LocalGroup;
using worker::LocalGroupOptions;

constexpr int kIterationsToRun = 3;

int Number(const std::string& text) {
  int number = 0;
  return absl::SimpleAtoi(text, &number) ? number : -1;
}

using Made = absl::StatusOr<std::unique_ptr<Group>>;

Made MakeGroup(int argc, char** argv) {
  LocalGroupOptions local;
  RemoteGroupOptions remote;
  bool attached = false;
  local.membership.connection.address = argv[1];
  local.membership.connection.min_backoff = absl::Milliseconds(10);
  local.membership.connection.max_backoff = absl::Milliseconds(100);
  local.membership.join_timeout = absl::Seconds(60);
  local.membership.timeout = absl::Seconds(60);
  local.membership.group = remote.group = argv[2];
  local.membership.rank = remote.rank = Number(argv[3]);
  local.membership.world_size = remote.world_size = Number(argv[4]);
  remote.worker.address.clear();
  remote.coordinator = argv[1];
  for (int i = 5; i < argc; ++i) {
    const std::pair<std::string, std::string> setting =
        absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const absl::Duration duration = absl::Milliseconds(Number(setting.second));
    if (setting.first == "host") local.bootstrap.host_identity = setting.second;
    if (setting.first == "timeout_ms") local.timeout = remote.timeout = duration;
    if (setting.first == "lease_ms") local.membership.lease = duration;
    if (setting.first == "member") local.membership.member = remote.member = setting.second;
    attached = attached || setting.first == "attached";
    if (setting.first == "attached" || setting.first == "remote") {
      remote.worker.address = setting.second;
    }
  }
  if (remote.worker.address.empty()) return LocalGroup::Create(std::move(local));
  if (attached) return worker::AttachedGroup::Create(std::move(remote));
  return client::RemoteGroup::Create(std::move(remote));
}

// Small numbers, so that sums are exact. Element i of rank r.
float Value(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 61); }

// One operation with its tensors, to be run again and again.
class Work {
 public:
  static absl::StatusOr<Work> Make(Group& group, const std::string& operation, int64_t bytes,
                                   bool registered) {
    Work work(group, operation);
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    const bool spreads = operation == "all_gather";
    const bool parts = operation == "reduce_scatter" || operation == "all_to_all";
    const int64_t input = parts ? (count + group.size() - 1) / group.size() * group.size() : count;
    const int64_t output = spreads                         ? count * group.size()
                           : operation == "reduce_scatter" ? input / group.size()
                                                           : input;
    for (const auto& [tensor, size] :
         {std::make_pair(&work.input_, input), std::make_pair(&work.output_, output)}) {
      if (registered) {
        absl::StatusOr<Tensor> allocated = group.Allocate(DataType::kF32, {size});
        if (!allocated.ok()) return allocated.status();
        *tensor = *std::move(allocated);
      } else {
        *tensor = Tensor::Zeros(DataType::kF32, {size});
      }
    }
    auto* const data = static_cast<float*>(work.input_.data());
    for (int64_t i = 0; i < input; ++i) data[i] = Value(group.rank(), i);
    return work;
  }

  absl::Status Run() const {
    const Reduction sum = {ReduceOp::kSum};
    if (operation_ == "all_reduce") return group_.AllReduce(input_, output_, sum, {});
    if (operation_ == "reduce_scatter") return group_.ReduceScatter(input_, output_, 0, sum, {});
    if (operation_ == "all_gather") return group_.AllGather(input_, output_, 0, {});
    if (operation_ == "all_to_all") return group_.AllToAll(input_, output_, {});
    if (operation_ == "broadcast") {
      if (group_.rank() == 0) std::memcpy(output_.data(), input_.data(), input_.bytes());
      return group_.Broadcast(output_, 0, {});
    }
    const int size = group_.size();
    const client::TensorTransfer transfers[] = {
        {true, (group_.rank() + 1) % size, input_},
        {false, (group_.rank() + size - 1) % size, output_}};
    return group_.Exchange(transfers, {});
  }

  absl::Status Verify() const {
    const auto* const data = static_cast<const float*>(output_.data());
    for (int64_t i = 0; i < output_.count(); ++i) {
      if (data[i] == Expected(i)) continue;
      return absl::DataLossError(
          absl::StrCat(operation_, ": element ", i, " is ", data[i], ", not ", Expected(i)));
    }
    return absl::OkStatus();
  }

 private:
  Work(Group& group, std::string operation) : group_(group), operation_(std::move(operation)) {}

  float SumAt(int64_t i) const {
    float sum = 0;
    for (int rank = 0; rank < group_.size(); ++rank) sum += Value(rank, i);
    return sum;
  }
  float Expected(int64_t i) const {
    const int rank = group_.rank();
    const int size = group_.size();
    if (operation_ == "all_reduce") return SumAt(i);
    if (operation_ == "reduce_scatter") return SumAt(rank * output_.count() + i);
    if (operation_ == "broadcast") return Value(0, i);
    if (operation_ == "exchange") return Value((rank + size - 1) % size, i);
    const int64_t part = output_.count() / size;
    const int from = static_cast<int>(part == 0 ? 0 : i / part);
    if (operation_ == "all_gather") return Value(from, i % part);
    return Value(from, rank * part + i % part);
  }

  Group& group_;
  const std::string operation_;
  Tensor input_;
  Tensor output_;
};

absl::Status Follow(Group& group, const std::vector<std::string>& words) {
  if (words[0] == "rejoin") {
    return group.Rejoin(words.size() > 1 ? absl::Milliseconds(Number(words[1])) : absl::Minutes(1));
  }
  if (words.size() != 4) return absl::InvalidArgumentError("no such command");
  absl::StatusOr<Work> work =
      Work::Make(group, words[1], Number(words[2]), words[3] == "registered");
  if (!work.ok()) return work.status();
  if (words[0] == "once") {
    const absl::Status status = work->Run();
    return status.ok() ? work->Verify() : status;
  }
  for (int iteration = 1;; ++iteration) {
    const absl::Status status = work->Run();
    if (!status.ok()) return status;
    if (iteration == kIterationsToRun) std::cout << "running" << std::endl;
  }
}

// The library hears of no fork, in whose child it would close sockets. The child ends with the
// standard input of both, and leaves the bytes there to its parent.
absl::Status StartChild() {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child < 0) return absl::ErrnoToStatus(errno, "clone");
  if (child > 0) return absl::OkStatus();
  pollfd end{STDIN_FILENO, 0, 0};
  while (poll(&end, 1, -1) < 0) {
  }
  _exit(0);
}

// Call it before any thread starts.
void BecomeUser(int argc, char** argv) {
  for (int i = 5; i < argc; ++i) {
    const absl::string_view setting = argv[i];
    if (!absl::StartsWith(setting, "uid=")) continue;
    const auto uid = static_cast<uid_t>(Number(std::string(setting.substr(4))));
    if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0) {
      std::cout << "failed to become user " << uid << std::endl;
      std::exit(1);
    }
  }
}

int Main(int argc, char** argv) {
  BecomeUser(argc, argv);
  const Made group = MakeGroup(argc, argv);
  const auto say = [](const absl::Status& status) {
    std::cout << absl::StatusCodeToString(status.code()) << " " << status.message() << std::endl;
  };
  if (!group.ok()) {
    std::cout << "failed ";
    say(group.status());
    return 1;
  }
  Group& rank = **group;
  std::cout << "joined " << rank.rank() << " " << rank.size() << " " << rank.generation() << " "
            << rank.paths()[static_cast<size_t>((rank.rank() + 1) % rank.size())] << std::endl;
  std::string line;
  while (std::getline(std::cin, line) && line != "leave") {
    say(line == "child" ? StartChild() : Follow(rank, absl::StrSplit(line, ' ')));
  }
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return cohort::Main(argc, argv); }
