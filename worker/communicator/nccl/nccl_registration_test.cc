// Memory that is registered with NCCL, by all ranks or none.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/nccl/clique/nccl_memory.h"
#include "worker/communicator/nccl/testing/nccl_group_test.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class NcclRegistrationTest : public NcclGroupTest {
 protected:
  using MemoryPtr = std::shared_ptr<NcclMemory>;

  ~NcclRegistrationTest() override { memory_.clear(); }

  void FormWith(int size, bool peer_access) {
    cuda::FakeMachine machine;
    machine.devices = kMostRanks;
    machine.peer_access = peer_access;
    cuda::ResetFakeRuntime(machine);
    Form(size);
    memory_.resize(static_cast<size_t>(size));
  }
  MemoryPtr& memory(const NcclCommunicator& group) {
    return memory_[static_cast<size_t>(group.rank())];
  }
  absl::Status Allocate(NcclCommunicator& group, size_t bytes = 4096) {
    COHORT_ASSIGN_OR_RETURN(memory(group), group.Allocate(bytes, Soon()));
    return absl::OkStatus();
  }
  absl::Status Sum(NcclCommunicator& group, float* number) {
    *number = 1;
    const absl::Status status =
        group.AllReduce(number, number, 1, DataType::kF32, {ReduceOp::kSum}, Soon());
    COHORT_RETURN_IF_ERROR(status);
    EXPECT_EQ(*number, static_cast<float>(size()));
    return status;
  }
  float* registered(const NcclCommunicator& group) {
    return reinterpret_cast<float*>(memory(group)->data());
  }
  int64_t Calls(const std::string& function) const {
    const std::vector<std::string> all = nccl_->functions();
    return std::count(all.begin(), all.end(), function);
  }

  std::vector<MemoryPtr> memory_;
};

TEST_P(NcclRegistrationTest, WithPeerAccessThereIsAWindow) {
  FormWith(GetParam(), true);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Allocate(group));
    COHORT_RETURN_IF_ERROR(Sum(group, registered(group)));
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, registered(group)));
    return group.Await(Soon());
  });
  EXPECT_EQ(nccl_->registered(), GetParam());
  EXPECT_EQ(Calls("ncclCommWindowRegister"), GetParam() > 1 ? GetParam() : 0);
  ranks_.clear();
  EXPECT_EQ(nccl_->registered(), 0);
  EXPECT_EQ(nccl_->leaks().size(), 1u) << "the memory exists as long as it has a holder";
}

TEST_P(NcclRegistrationTest, WithoutPeerAccessThereIsNoWindow) {
  FormWith(GetParam(), false);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Allocate(group));
    return Sum(group, registered(group));
  });
  EXPECT_EQ(nccl_->registered(), GetParam());
  EXPECT_EQ(Calls("ncclCommWindowRegister"), 0);
}

TEST_P(NcclRegistrationTest, BuffersOfDifferentSizesAreNoWindow) {
  FormWith(GetParam(), true);
  RunWell(
      [&](NcclCommunicator& group) { return Allocate(group, group.rank() == 0 ? 4096 : 8192); });
  EXPECT_EQ(nccl_->registered(), GetParam());
  EXPECT_EQ(Calls("ncclCommWindowRegister"), 0);
}

TEST_P(NcclRegistrationTest, MemoryOutlivesItsHolderWhileItIsRegistered) {
  FormWith(GetParam(), true);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Allocate(group));
    memory(group) = nullptr;
    float number = 1;
    return Sum(group, &number);
  });
  EXPECT_EQ(nccl_->registered(), GetParam());
  // The end of the test finds that nothing is left, and was freed while it was registered.
}

TEST_P(NcclRegistrationTest, DeregisteringWaitsForWhatIsInFlight) {
  FormWith(GetParam(), true);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Allocate(group));
    COHORT_RETURN_IF_ERROR(Sum(group, registered(group)));
    cuda::StreamGate gate;
    EXPECT_EQ(gate.Close(stream(group.rank())), cudaSuccess);
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, registered(group)));
    EXPECT_EQ(group.Deregister(*memory(group), In(absl::Milliseconds(10))).code(),
              absl::StatusCode::kDeadlineExceeded);
    gate.Open();
    COHORT_RETURN_IF_ERROR(group.Deregister(*memory(group), Soon()));
    EXPECT_EQ(group.Deregister(*memory(group), Soon()).code(), absl::StatusCode::kInvalidArgument);
    return group.Barrier(Soon());
  });
  EXPECT_EQ(nccl_->registered(), 0);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Sum(group, registered(group)));
    return group.Register(memory(group), Soon());
  });
  EXPECT_EQ(nccl_->registered(), GetParam());
}

TEST_P(NcclRegistrationTest, AFailureOnOneRankIsUndoneOnAll) {
  const std::pair<const char*, bool> calls[] = {{"ncclCommWindowRegister", true},
                                                {"ncclCommRegister", false}};
  for (const auto& [call, peer_access] : calls) {
    if (GetParam() == 1 && peer_access) continue;
    SCOPED_TRACE(call);
    ranks_.clear();
    streams_.clear();
    FormWith(GetParam(), peer_access);
    nccl_->FailNext(call, ncclSystemError, size() - 1);
    for (const absl::Status& status :
         Run([&](NcclCommunicator& group) { return Allocate(group); })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("rank ", size() - 1, " cannot register memory: ", call)));
    }
    EXPECT_EQ(nccl_->registered(), 0);
    RunWell([&](NcclCommunicator& group) {
      COHORT_RETURN_IF_ERROR(Allocate(group));
      COHORT_RETURN_IF_ERROR(Sum(group, registered(group)));
      return group.Deregister(*memory(group), Soon());
    });
    memory_.clear();
  }
}

TEST_P(NcclRegistrationTest, WhereNcclHasNoMemoryThereIsOther) {
  FormWith(GetParam(), true);
  for (int r = 0; r < size(); ++r) nccl_->FailNext("ncclMemAlloc", ncclInvalidUsage);
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Allocate(group));
    return Sum(group, registered(group));
  });
  EXPECT_EQ(nccl_->registered(), GetParam());
  EXPECT_EQ(Calls("ncclMemFree"), 0);
}

TEST_P(NcclRegistrationTest, AFullDeviceIsReportedToAllRanks) {
  FormWith(GetParam(), true);
  for (const absl::Status& status : Run([&](NcclCommunicator& group) {
         return Allocate(group, group.rank() == 0 ? size_t{1} << 40 : 4096);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 cannot register memory: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ncclMemAlloc"));
  }
  RunWell([&](NcclCommunicator& group) {
    float number = 1;
    return Sum(group, &number);
  });
}

TEST_P(NcclRegistrationTest, AGroupThatBreaksKeepsTheMemoryToItsEnd) {
  FormWith(GetParam(), true);
  RunWell([&](NcclCommunicator& group) { return Allocate(group); });
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, registered(group)); });
  for (int r = 0; r < size(); ++r) rank(r).Abort("enough");
  memory_.clear();
  memory_.resize(ranks_.size());
  for (const absl::Status& status : Run([&](NcclCommunicator& group) { return Allocate(group); })) {
    EXPECT_EQ(status, absl::AbortedError("enough"));
  }
  ranks_.clear();
  EXPECT_EQ(nccl_->registered(), 0);
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclRegistrationTest, ::testing::Values(1, 2, 3, 5));

TEST_F(NcclRegistrationTest, SomeRegisteredAndSomeNotIsADifference) {
  FormWith(3, true);
  RunWell([&](NcclCommunicator& group) { return Allocate(group); });
  for (const absl::Status& status : Run([&](NcclCommunicator& group) {
         float number = 1;
         return Sum(group, group.rank() == 1 ? &number : registered(group));
       })) {
    EXPECT_TRUE(IsMismatch(status)) << status;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("rank 0 all_reduce of 1 f32 by sum, registered memory at offset digest "),
              EndsWith("; rank 1 all_reduce of 1 f32 by sum")));
  }
  // A tensor that only the root has may lie in any memory.
  RunWell([&](NcclCommunicator& group) {
    float number = 1;
    float* const input = group.rank() == 0 ? &number : nullptr;
    return group.Broadcast(input, registered(group), 1, DataType::kF32, 0, Soon());
  });
}

// In a symmetric window each rank looks for the others' memory where its own is.
TEST_F(NcclRegistrationTest, DifferentOffsetsAreAMismatchOnlyInAWindow) {
  for (const bool window : {true, false}) {
    ranks_.clear();
    streams_.clear();
    memory_.clear();
    FormWith(3, window);
    RunWell([&](NcclCommunicator& group) { return Allocate(group); });
    const std::vector<absl::Status> statuses = Run([&](NcclCommunicator& group) {
      return Sum(group, registered(group) + (group.rank() == 2 ? 16 : 0));
    });
    for (const absl::Status& status : statuses) {
      if (!window) {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_TRUE(IsMismatch(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("all_reduce of 1 f32 by sum, registered memory at offset digest "));
    }
    // It stands, and what the root alone has may lie anywhere.
    RunWell([&](NcclCommunicator& group) {
      COHORT_RETURN_IF_ERROR(Sum(group, registered(group)));
      return group.Broadcast(registered(group) + 64, registered(group), 1, DataType::kF32, 0,
                             Soon());
    });
  }
}

TEST_P(NcclRegistrationTest, NothingIsRegisteredIfOneRankHasNoMemory) {
  FormWith(GetParam(), true);
  for (const bool all_have : {false, true}) {
    RunWell([&](NcclCommunicator& group) -> absl::Status {
      const bool has = all_have || group.rank() != size() - 1;
      MemoryPtr given;
      if (has) {
        COHORT_ASSIGN_OR_RETURN(given, NcclMemory::Allocate(nccl_, group.rank(), 4096, Soon()));
      }
      COHORT_ASSIGN_OR_RETURN(const bool registered, group.RegisterWhereAllHave(given, Soon()));
      EXPECT_EQ(registered, all_have);
      float number = 1;
      return Sum(group, &number);
    });
    EXPECT_EQ(nccl_->registered(), all_have ? size() : 0);
  }
}

TEST_F(NcclRegistrationTest, MemoryOfAnotherDeviceIsRefusedByAll) {
  FormWith(2, true);
  absl::StatusOr<MemoryPtr> other = NcclMemory::Allocate(nccl_, 4, 4096, Soon());
  ASSERT_TRUE(other.ok()) << other.status();
  for (const absl::Status& status :
       Run([&](NcclCommunicator& group) { return group.Register(*other, Soon()); })) {
    EXPECT_EQ(status, absl::InvalidArgumentError(
                          "rank 0 cannot register memory: it is of CUDA device 4, and the rank's "
                          "is 0"));
  }
  EXPECT_EQ(NcclMemory::Allocate(nccl_, 0, 0, Soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::worker
