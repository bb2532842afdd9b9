// The forms in which the `cohort` command can be a rank.
#ifndef COHORT_WORKER_CLI_LIBRARY_GROUP_MAKER_H_
#define COHORT_WORKER_CLI_LIBRARY_GROUP_MAKER_H_

#include <memory>

#include "client/cli/clients/group_maker.h"

namespace cohort::worker {

std::unique_ptr<cli::GroupMaker> MakeGroupMaker();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_CLI_LIBRARY_GROUP_MAKER_H_
