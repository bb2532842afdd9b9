// A client of a worker, in a process of its own, so that a test can kill it.
//
//   client_main WORKER GROUP RANK SIZE
//
// Prints `joined GENERATION` or `failed CODE TEXT`, then all-reduces for ever: `running` after a
// few, `CODE TEXT` when one fails. Ends with its standard input.
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "client/collective/remote/remote_group.h"

namespace cohort {
namespace {

int Main(char** argv) {
  client::RemoteGroupOptions options;
  options.worker.address = argv[1];
  options.worker.client_name = "trainer";
  options.group = argv[2];
  int rank = 0;
  if (!absl::SimpleAtoi(argv[3], &rank) || !absl::SimpleAtoi(argv[4], &options.world_size)) {
    return 2;
  }
  options.rank = rank;
  const auto say = [](const absl::Status& status) {
    std::cout << absl::StatusCodeToString(status.code()) << " " << status.message() << std::endl;
  };
  absl::StatusOr<std::unique_ptr<client::RemoteGroup>> group = client::RemoteGroup::Create(options);
  if (!group.ok()) {
    std::cout << "failed ";
    say(group.status());
    return 1;
  }
  std::cout << "joined " << (*group)->generation() << std::endl;
  absl::StatusOr<Tensor> tensor = (*group)->Allocate(DataType::kF32, {100000});
  absl::Status status = tensor.status();
  for (int iteration = 1; status.ok(); ++iteration) {
    status = (*group)->AllReduce(*tensor, *tensor, {ReduceOp::kMax}, {});
    if (status.ok() && iteration == 3) std::cout << "running" << std::endl;
  }
  say(status);
  std::string line;
  std::getline(std::cin, line);
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return argc == 5 ? cohort::Main(argv) : 2; }
