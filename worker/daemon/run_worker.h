// The main function of cohort-worker.
#ifndef COHORT_WORKER_DAEMON_RUN_WORKER_H_
#define COHORT_WORKER_DAEMON_RUN_WORKER_H_

namespace cohort::worker {

// Exit codes:
//   0  ended by SIGTERM or SIGINT, or --help, --version, --check-config
//   1  could not start: address in use
//   2  the configuration is wrong
int RunWorker(int argc, char** argv);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_RUN_WORKER_H_
