// A rank of a group, in a process of its own, that runs the calls that it reads.
//
//   scripted_rank_main local COORDINATOR GROUP RANK SIZE
//   scripted_rank_main attached|remote WORKER GROUP RANK SIZE
//
// Prints `joined`, or `failed TEXT`. Then reads lines, and prints `done CODE` after each:
// `all_reduce`, `broadcast ROOT`, `receive RANK`, `objects` (all ranks exchange objects, through
// the coordinator). Ends with its standard input.
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "client/collective/remote/remote_group.h"
#include "worker/group/attached_group.h"
#include "worker/group/local_group.h"

namespace cohort {
namespace {

absl::StatusOr<std::unique_ptr<client::Group>> Join(const std::string& form, char** argv, int rank,
                                                    int world_size) {
  if (form == "local") {
    worker::LocalGroupOptions options;
    options.membership.connection.address = argv[2];
    options.membership.group = argv[3];
    options.membership.rank = rank;
    options.membership.world_size = world_size;
    return worker::LocalGroup::Create(std::move(options));
  }
  client::RemoteGroupOptions options;
  options.worker.address = argv[2];
  options.worker.client_name = "scripted";
  options.group = argv[3];
  options.rank = rank;
  options.world_size = world_size;
  if (form == "attached") return worker::AttachedGroup::Create(std::move(options));
  return client::RemoteGroup::Create(std::move(options));
}

absl::Status Call(client::Group& group, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  int rank = 0;
  words >> command >> rank;
  COHORT_ASSIGN_OR_RETURN(const Tensor tensor, group.Allocate(DataType::kF32, {16}));
  if (command == "all_reduce") return group.AllReduce(tensor, tensor, {ReduceOp::kMax});
  if (command == "broadcast") return group.Broadcast(tensor, rank);
  if (command == "receive") return group.Receive(tensor, rank);
  if (command == "objects") return group.AllGatherObjects("mine").status();
  return absl::InvalidArgumentError(line);
}

int Main(char** argv) {
  int rank = 0;
  int world_size = 0;
  if (!absl::SimpleAtoi(argv[4], &rank) || !absl::SimpleAtoi(argv[5], &world_size)) return 2;
  const auto group = Join(argv[1], argv, rank, world_size);
  if (!group.ok()) {
    std::cout << "failed " << group.status() << std::endl;
    return 1;
  }
  std::cout << "joined" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << "done " << absl::StatusCodeToString(Call(**group, line).code()) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return argc == 6 ? cohort::Main(argv) : 2; }
