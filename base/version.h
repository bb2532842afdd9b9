// The version of this tree, which all programs print with --version.
#ifndef COHORT_BASE_VERSION_H_
#define COHORT_BASE_VERSION_H_

namespace cohort {

// The newest version of CHANGELOG.md: tests/public_api/version_test.sh compares them.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace cohort

#endif  // COHORT_BASE_VERSION_H_
