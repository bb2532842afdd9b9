// What --version and GetWorker say.
#ifndef COHORT_WORKER_SERVICE_VERSION_H_
#define COHORT_WORKER_SERVICE_VERSION_H_

namespace cohort::worker {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_VERSION_H_
