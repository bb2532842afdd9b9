// One case for each kind of error between ranks, with 2 and 4 ranks. All members get the same
// error, at once or at the deadline. The group, or its next generation, works on.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/report/report.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;

constexpr Reduction kSum = {ReduceOp::kSum};
constexpr int kSizes[] = {2, 4};

Tensor F32(Shape shape) { return Tensor::Zeros(DataType::kF32, std::move(shape)); }

class ErrorsTest : public ParallelTest {
 protected:
  void ExpectUsable() {
    ExpectOk(OnRanks([](client::Group& group) -> absl::Status {
      const Tensor ones = F32({1000});
      std::fill_n(static_cast<float*>(ones.data()), 1000, 1.0f);
      const Tensor sum = F32({1000});
      COHORT_RETURN_IF_ERROR(group.AllReduce(ones, sum, kSum));
      EXPECT_EQ(static_cast<float*>(sum.data())[999], static_cast<float>(group.size()));
      return absl::OkStatus();
    }));
  }
  // Expects that all statuses have `code` and the same text, which has all of `said`.
  void ExpectSame(absl::StatusCode code, const std::vector<absl::Status>& statuses,
                  const std::vector<std::string>& said) {
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    for (const std::string& text : said) {
      EXPECT_THAT(std::string(statuses[0].message()), HasSubstr(text));
    }
  }
  void ExpectRefused(const std::function<absl::Status(client::Group&)>& body,
                     const std::vector<std::string>& said) {
    ExpectSame(absl::StatusCode::kInvalidArgument, OnRanks(body), said);
    ExpectUsable();
  }
  client::ProcessGroupOptions Member(const std::string& group, int rank, int size) {
    return MemberOptions(cohort::testing::Connect(coordinator_.address()), group, rank, size);
  }
};

TEST_P(ErrorsTest, RanksRootsPeersAndDimensionsOutOfRange) {
  for (const int size : kSizes) {
    MakeGroup(size);
    for (const int root : {-1, size}) {
      // Large enough that the root waits for the other ranks.
      ExpectRefused(
          [&](client::Group& group) {
            return group.Broadcast(F32({5000}), group.rank() == 1 ? root : 0);
          },
          {"rank 1 broadcast", absl::StrCat("root ", root)});
      ExpectRefused(
          [&](client::Group& group) {
            return group.Gather(F32({2}), F32({2 * size}), 0, group.rank() == 1 ? root : 0);
          },
          {"rank 1 gather", absl::StrCat("root ", root)});
    }
    for (const int dim : {-3, 2}) {
      ExpectRefused(
          [&](client::Group& group) {
            return group.AllGather(F32({2, 2}), F32({2 * size, 2}), group.rank() == 1 ? dim : 0);
          },
          {"rank 1 all_gather", absl::StrCat("dimension ", dim)});
    }
    // A message without a valid peer fails only on its caller.
    ExpectOk(OnRanks([&](client::Group& group) {
      for (const int peer : {-1, size, group.rank()}) {
        EXPECT_EQ(group.Send(F32({1}), peer).code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(group.Receive(F32({1}), peer).code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(group.SendObject("x", peer).code(), absl::StatusCode::kInvalidArgument);
      }
      return absl::OkStatus();
    }));
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, ShapesTypesSizesAndOperatorsThatDiffer) {
  for (const int size : kSizes) {
    MakeGroup(size);
    const int last = size - 1;
    const auto odd = [&](client::Group& group) { return group.rank() == last; };
    const std::string who = absl::StrCat("rank ", last, " ");
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = odd(group) ? F32({6, 2}) : F32({4, 3});
          return group.AllReduce(tensor, tensor, kSum);
        },
        {who, "[6, 2]", "[4, 3]"});
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = Tensor::Zeros(odd(group) ? DataType::kI32 : DataType::kF32, {8});
          return group.AllReduce(tensor, tensor, kSum);
        },
        {who, "i32", "f32"});
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = F32({8});
          return group.AllReduce(tensor, tensor, {odd(group) ? ReduceOp::kMax : ReduceOp::kSum});
        },
        {who, "by sum", "by max"});
    ExpectRefused(
        [&](client::Group& group) {
          client::Sizes sizes(static_cast<size_t>(size), 1);
          if (odd(group)) sizes[0] = 2;
          return group.AllGatherV(F32({1, 2}), F32({size + (odd(group) ? 1 : 0), 2}), 0, sizes);
        },
        {who, "sizes [1", "sizes [2"});
    ExpectRefused(
        [&](client::Group& group) {
          const Tensor tensor = F32({4000});
          return odd(group) ? group.Broadcast(tensor, 0) : group.AllReduce(tensor, tensor, kSum);
        },
        {who, "broadcast", "all_reduce"});
    ExpectRefused(
        [&](client::Group& group) {
          client::Sizes sent(static_cast<size_t>(size), 1);
          client::Sizes expected(static_cast<size_t>(size), odd(group) ? 2 : 1);
          return group.AllToAllV(F32({size}), sent, F32({odd(group) ? 2 * size : size}), expected);
        },
        {"rank 0 sends 1 to " + who.substr(0, who.size() - 1), "expects 2"});
  }
}

TEST_P(ErrorsTest, ExtentsThatDoNotDivide) {
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::string extent = absl::StrCat(size + 1);
    // All ranks have an extent that does not divide, or only one rank.
    for (const int most : {size, 1}) {
      const auto rows = [&](client::Group& group) { return group.rank() < most ? size + 1 : size; };
      ExpectRefused(
          [&](client::Group& group) {
            return group.ReduceScatter(F32({rows(group), 3}), F32({1, 3}), 0, kSum);
          },
          {extent, "not a multiple of"});
      ExpectRefused(
          [&](client::Group& group) {
            return group.AllToAll(F32({rows(group), 3}), F32({rows(group), 3}));
          },
          {extent, "not a multiple of"});
    }
  }
}

TEST_P(ErrorsTest, TypesThatCannotBeReduced) {
  for (const int size : kSizes) {
    MakeGroup(size);
    ExpectRefused(
        [](client::Group& group) {
          return group.AllReduce(F32({8}), F32({8}), {ReduceOp::kBitXor});
        },
        {"f32", "bit_xor"});
    ExpectRefused(
        [](client::Group& group) {
          const DataType type = group.rank() == 0 ? DataType::kC64 : DataType::kF32;
          const Tensor tensor = Tensor::Zeros(type, {8});
          return group.AllReduce(tensor, tensor, kSum);
        },
        {"c64"});
  }
}

TEST_P(ErrorsTest, ARankThatIsTaken) {
  for (const int size : kSizes) {
    MakeGroup(size);
    client::ProcessGroupOptions second = Member(rank(0).name(), 1, size);
    second.member = "another";
    EXPECT_EQ(client::ProcessGroup::Create(second).status().code(),
              absl::StatusCode::kAlreadyExists);
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, AGroupThatIsNotThere) {
  const auto admin = client::AdminClient::Create(cohort::testing::Connect(coordinator_.address()));
  EXPECT_EQ(admin->GetGroup("no-such-group").status().code(), absl::StatusCode::kNotFound);
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::string name = rank(0).name();
    EXPECT_TRUE(admin->GetGroup(name).ok());
    MakeGroup(1);  // all of it have left
    EXPECT_TRUE(Eventually([&] { return absl::IsNotFound(admin->GetGroup(name).status()); }));
  }
}

// A sequence is a CUDA graph, which groups in host memory do not have.
TEST_P(ErrorsTest, ASequenceInHostMemoryCannotBeRecorded) {
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::vector<absl::Status> statuses = OnRanks([](client::Group& group) {
      const Tensor tensor = F32({100});
      return group.Record([&](client::Group& to) { return to.AllReduce(tensor, tensor, kSum); })
          .status();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(GetParam() == Form::kDevice ? "in host memory cannot be recorded"
                                                        : "call the collectives themselves"));
    }
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, ASequenceOfAnOldGenerationIsRefused) {
  if (GetParam() != Form::kDevice) GTEST_SKIP() << "sequences are for tensors on GPUs";
  for (const int size : kSizes) {
    MakeGroup(size);
    std::vector<std::unique_ptr<client::Sequence>> sequences(static_cast<size_t>(size));
    ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
      const Tensor tensor = Upload(group, F32({100}));
      COHORT_ASSIGN_OR_RETURN(
          sequences[static_cast<size_t>(group.rank())],
          group.Record([&](client::Group& to) { return to.AllReduce(tensor, tensor, kSum); }));
      if (group.rank() == 0) group.Abort(absl::CancelledError("for the test"));
      EXPECT_FALSE(group.AllReduce(tensor, tensor, kSum).ok());
      return group.Rejoin(kTimeout);
    }));
    ExpectSame(absl::StatusCode::kFailedPrecondition, OnRanks([&](client::Group& group) {
                 return sequences[static_cast<size_t>(group.rank())]->Replay({});
               }),
               {"generation 1", "generation 2"});
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, ARankThatDoesNotCome) {
  for (const int size : kSizes) {
    MakeGroup(size, absl::Milliseconds(500));
    const int late = size - 1;
    const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
      if (group.rank() == late) return absl::OkStatus();
      return group.AllReduce(F32({64}), F32({64}), kSum);
    });
    for (int rank = 0; rank < late; ++rank) {
      const absl::Status& status = statuses[static_cast<size_t>(rank)];
      // The rank whose deadline ends first reports it to the others, which get ABORTED.
      EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsAborted(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(late)));
      if (absl::IsDeadlineExceeded(status)) {
        EXPECT_EQ(client::GetErrorInfo(status).missing, std::vector<RankRange>({{late, late}}));
      }
    }
    ExpectOk(OnRanks([](client::Group& group) { return group.Rejoin(kTimeout); }));
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, ARankThatGivesUp) {
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
      if (group.rank() == 1) group.Abort(absl::InternalError("out of ideas"));
      return group.AllReduce(F32({64}), F32({64}), kSum);
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 aborted: out of ideas"));
      EXPECT_EQ(client::GetErrorInfo(status).cause.rank, 1) << status;
    }
    ExpectOk(OnRanks([](client::Group& group) { return group.Rejoin(kTimeout); }));
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, AnObjectThatHasExpired) {
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::string name = absl::StrCat("expiring-", size);
    Members members =
        cohort::testing::JoinAll({cohort::testing::Connect(coordinator_.address())}, name, size);
    for (int rank = 1; rank < size; ++rank) {
      ASSERT_TRUE(members[0]->Send("old", rank).ok());
    }
    EXPECT_EQ(members[0]->ExpireData(absl::ZeroDuration()).value_or(-1), size - 1);
    for (int rank = 1; rank < size; ++rank) {
      client::ProcessGroup& member = *members[static_cast<size_t>(rank)];
      const absl::Status lost = member.Receive(0, "", kTimeout).status();
      EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss) << lost;
      EXPECT_THAT(std::string(lost.message()), HasSubstr("expired"));
      ASSERT_TRUE(members[0]->Send("new", rank).ok());
      EXPECT_EQ(member.Receive(0, "", kTimeout).value_or(""), "new");
    }
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, ABarrierThatIsCancelled) {
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::string name = absl::StrCat("cancelled-", size);
    Members members =
        cohort::testing::JoinAll({cohort::testing::Connect(coordinator_.address())}, name, size);
    std::vector<absl::Status> statuses(static_cast<size_t>(size));
    OnThreads(size, [&](int rank) {
      client::ProcessGroup& member = *members[static_cast<size_t>(rank)];
      if (rank == size - 1) {
        EXPECT_TRUE(AwaitParked(coordinator_.address(), name, size - 1));
        EXPECT_EQ(member.CancelBarrier("", "enough"), absl::OkStatus());
      }
      // A rank that calls after the cancellation gets the error, too.
      statuses[static_cast<size_t>(rank)] = member.Barrier();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("enough"));
    }
    OnThreads(size, [&](int rank) {
      EXPECT_EQ(members[static_cast<size_t>(rank)]->Barrier(), absl::OkStatus());
    });
  }
}

TEST_P(ErrorsTest, AnObjectThatIsTooLarge) {
  const auto admin = client::AdminClient::Create(cohort::testing::Connect(coordinator_.address()));
  const auto limits = admin->Limits({});
  ASSERT_TRUE(limits.ok()) << limits.status();
  ASSERT_EQ(limits->count("max_object_bytes"), 1u);
  ASSERT_TRUE(admin->Limits({{"max_object_bytes", int64_t{2} << 20}}).ok());
  for (const int size : kSizes) {
    MakeGroup(size);
    const std::string large(size_t{3} << 20, 'x');
    for (const absl::Status& status : OnRanks([&](client::Group& group) {
           return group.SendObject(large, (group.rank() + 1) % group.size());
         })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("max_object_bytes"));
    }
    ExpectUsable();
  }
}

TEST_P(ErrorsTest, ACoordinatorThatIsAway) {
  for (const int size : kSizes) {
    MakeGroup(size, absl::Milliseconds(500));
    coordinator_.Pause();
    const auto barrier = [](client::Group& group, const client::CallOptions& options = {}) {
      return group.AllGatherObjects("", options).status();
    };
    const std::vector<absl::Status> statuses =
        OnRanks([&](client::Group& group) { return barrier(group); });
    // Collectives on tensors do not need the coordinator.
    client::CallOptions patient;
    patient.timeout = kTimeout;
    ExpectOk(OnRanks([&](client::Group& group) {
      return group.AllReduce(F32({64}), F32({64}), kSum, patient);
    }));
    coordinator_.Resume();
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    }
    ExpectOk(OnRanks([&](client::Group& group) {
      // The first exchange is still the one without an answer: at the coordinator, its time may
      // have run out for all ranks.
      const absl::Status same = barrier(group, patient);
      EXPECT_TRUE(same.ok() || absl::IsDeadlineExceeded(same)) << same;
      return barrier(group, patient);
    }));
    ExpectUsable();
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ErrorsTest,
                         ::testing::Values(Form::kLocal, Form::kDaemon, Form::kAttached), FormName);

}  // namespace
}  // namespace cohort::testing
