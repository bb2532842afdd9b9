// A worker in a container with a limit on its memory: clients whose tensors do not fit get an error
// with the limit, and the worker serves the others.
#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;
using testing::WorkerTest;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kContainer = 256 * kMiB;

// The memory of the process, in bytes. A page that it maps twice counts once, as in a cgroup.
int64_t MemoryOf(pid_t pid) {
  std::ifstream maps(absl::StrCat("/proc/", pid, "/smaps_rollup"));
  std::string word;
  int64_t kib = 0;
  while (maps >> word) {
    if (word == "Pss:" && maps >> kib) return kib * 1024;
  }
  return 0;
}

class MemoryLimitTest : public WorkerTest {
 protected:
  void SetUp() override {
    const std::string worker = testing::ProgramPath(worker_binary_);
    worker_binary_ = "tests/worker/run_with_memory_limit";
    const std::string limit = absl::StrCat("COHORT_TEST_MEMORY_BYTES=", kContainer);
    ChildProcess probe({"/usr/bin/env", "COHORT_TEST_PROGRAM=/bin/true", limit,
                        testing::ProgramPath(worker_binary_)});
    const absl::StatusOr<int> exit = probe.Wait(kTimeout);
    ASSERT_TRUE(exit.ok()) << exit.status();
    if (*exit != 0) GTEST_SKIP() << "needs mount namespaces: " << probe.ErrorText();
    WorkerTest::SetUp();
    StartWorker({}, {absl::StrCat("COHORT_TEST_PROGRAM=", worker), limit});
  }

  Groups JoinTwo(const std::string& group) {
    return JoinAll({Connect(0, Transport::kRemoteTcp), Connect(0, Transport::kRemoteTcp)}, group);
  }
  static std::vector<absl::Status> AllReduce(const Groups& groups, int64_t bytes) {
    return OnRanks(groups, [bytes](client::Group& group) {
      const Tensor tensor = Tensor::Zeros(DataType::kU8, {bytes});
      return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
    });
  }
};

TEST_F(MemoryLimitTest, ATensorAboveThreeQuartersIsRefused) {
  const Groups small = JoinTwo("small");
  const Groups large = JoinTwo("large");
  for (const absl::Status& status : AllReduce(large, 200 * kMiB)) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("takes 209715200 bytes; all sessions hold 0 of 201326592 "
                          "(--max-tensor-bytes)"));
  }
  ExpectOk(AllReduce(small, kMiB));
  ExpectOk(AllReduce(large, 64 * kMiB));
}

// Each of two ranks has room, but not both. The rank that has none gets its error with the code.
TEST_F(MemoryLimitTest, TensorsOfAllSessionsCount) {
  const Groups small = JoinTwo("small");
  const Groups large = JoinTwo("large");
  const std::vector<absl::Status> statuses = AllReduce(large, 128 * kMiB);
  EXPECT_NE(absl::IsResourceExhausted(statuses[0]), absl::IsResourceExhausted(statuses[1]));
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("takes 134217728 bytes; all sessions hold 134217728 of 201326592 "
                          "(--max-tensor-bytes)"));
  }
  ExpectOk(AllReduce(small, kMiB));
  // The first rank keeps its memory for a later call, so that all three quarters are used.
  ExpectOk(AllReduce(large, 64 * kMiB));
  EXPECT_EQ(Describe(0).tensor_bytes(), 192 * kMiB);
  EXPECT_LT(MemoryOf(worker(0).pid()), kContainer);
}

}  // namespace
}  // namespace cohort
