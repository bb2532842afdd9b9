// A rank of three that makes groups with the others, in a process of its own. Rank 1 dies instead
// of taking its place.
//
//   layout_rank_main COORDINATOR RANK
//
// Prints the status of the creation, in one line.
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <memory>

#include "client/parallel/layout/groups/create_groups.h"
#include "worker/group/local_group_factory.h"

namespace cohort {
namespace {

constexpr int kVictim = 1;

absl::Status Run(const char* coordinator, int rank) {
  worker::LocalGroupOptions options;
  options.membership.connection.address = coordinator;
  const client::GroupFactory factory = worker::LocalGroupFactory(options);
  client::PlannedRank place;
  place.name = "world";
  place.rank = rank;
  place.world_size = 3;
  auto world = factory(place);
  if (!world.ok()) return world.status();
  const client::GroupFactory dying = [&](const client::PlannedRank& planned) {
    if (rank == kVictim) raise(SIGKILL);
    return factory(planned);
  };
  parallel::CreateGroupsOptions groups;
  groups.timeout = absl::Seconds(2);
  return parallel::CreateGroups(**world, {{0, kVictim}, {2}}, parallel::Role::kTensor, dying,
                                groups)
      .status();
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::cout << cohort::Run(argv[1], std::atoi(argv[2])) << std::endl;
  return 0;
}
