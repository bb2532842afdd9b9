// The main function of cohort-worker, without the source of its GPUs.
#ifndef COHORT_WORKER_DAEMON_RUN_WORKER_H_
#define COHORT_WORKER_DAEMON_RUN_WORKER_H_

#include "worker/daemon/gpu/gpu_table.h"

namespace cohort::worker {

// Exit codes:
//   0  ended by SIGTERM or SIGINT, or --help, --version, --check-config
//   1  could not start: address in use
//   2  the configuration is wrong
int RunWorker(int argc, char** argv, GpuTable::Opener open_gpu);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_RUN_WORKER_H_
