// What --version and ServerStats say.
#ifndef COHORT_COORDINATOR_VERSION_H_
#define COHORT_COORDINATOR_VERSION_H_

namespace cohort::coordinator {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_VERSION_H_
