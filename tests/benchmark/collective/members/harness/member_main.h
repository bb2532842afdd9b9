// The main function of every member program.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_MAIN_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_MAIN_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/benchmark/collective/members/harness/member.h"

namespace cohort::benchmark {

struct MemberOptions {
  int rank = -1;  // where the program that starts members does not say it another way
  int members = 0;
  std::string folder;   // empty, shared by the members of one start
  std::string address;  // by which the other ranks reach this one, where they are on other hosts
};

// Blocks until the group is there.
using MemberFactory = std::function<absl::StatusOr<std::unique_ptr<Member>>(const MemberOptions&)>;

// Reads --control PATH --members P [--rank R] [--folder DIR] [--address A] and makes the member.
// Then follows the driver at PATH (member_processes.h) until it sends "quit". Ends at once when the
// driver is gone, even in the middle of a call. Returns main's result.
int MemberMain(int argc, char** argv, const MemberFactory& factory);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_MAIN_H_
