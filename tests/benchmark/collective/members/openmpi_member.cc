// A rank of Open MPI, started by mpirun.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/members/harness/member.h"
#include "tests/benchmark/collective/members/harness/member_buffers.h"
#include "tests/benchmark/collective/members/harness/member_main.h"

namespace cohort::benchmark {
namespace {

absl::Status StatusOf(int result, const char* what) {
  if (result == MPI_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " gives ", result));
}

class MpiWork final : public Prepared {
 public:
  MpiWork(const Work& work, int rank, int members, Buffers buffers)
      : work_(work),
        rank_(rank),
        members_(members),
        buffers_(std::move(buffers)),
        block_(static_cast<int>(BlockElements(work, members))),
        blocks_(members, block_) {}

  float* input() override { return buffers_.input->data(); }
  float* output() override { return buffers_.output->data(); }

  absl::Status Run(int64_t iterations) override {
    for (int64_t i = 0; i < iterations; ++i) {
      COHORT_RETURN_IF_ERROR(StatusOf(RunOnce(), "a collective"));
    }
    return absl::OkStatus();
  }

 private:
  int RunOnce() {
    const int count = static_cast<int>(std::max(buffers_.extents.input, buffers_.extents.output));
    switch (work_.collective) {
      case Collective::kAllReduce:
        return MPI_Allreduce(input(), output(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      case Collective::kAllGather: {
        const int each = static_cast<int>(buffers_.extents.input);
        return MPI_Allgather(input(), each, MPI_FLOAT, output(), each, MPI_FLOAT, MPI_COMM_WORLD);
      }
      case Collective::kReduceScatter:
        if (work_.algorithm == "uneven") {
          return MPI_Reduce_scatter(input(), output(), blocks_.data(), MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
        }
        return MPI_Reduce_scatter_block(input(), output(), block_, MPI_FLOAT, MPI_SUM,
                                        MPI_COMM_WORLD);
      case Collective::kBroadcast:
        return MPI_Bcast(rank_ == 0 ? input() : output(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
      case Collective::kAllToAll:
        return MPI_Alltoall(input(), block_, MPI_FLOAT, output(), block_, MPI_FLOAT,
                            MPI_COMM_WORLD);
      case Collective::kExchange:
        return MPI_Sendrecv(input(), count, MPI_FLOAT, (rank_ + 1) % members_, 0, output(), count,
                            MPI_FLOAT, (rank_ + members_ - 1) % members_, 0, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE);
      default:
        return MPI_ERR_OTHER;
    }
  }

  const Work work_;
  const int rank_;
  const int members_;
  const Buffers buffers_;
  const int block_;
  const std::vector<int> blocks_;
};

class MpiMember final : public Member {
 public:
  MpiMember() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &members_);
  }
  ~MpiMember() override { MPI_Finalize(); }

  int rank() const override { return rank_; }

  absl::Status Barrier() override { return StatusOf(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) override {
    COHORT_ASSIGN_OR_RETURN(Buffers buffers, Buffers::Allocate(work, rank_, members_));
    return std::make_unique<MpiWork>(work, rank_, members_, std::move(buffers));
  }

 private:
  int rank_ = 0;
  int members_ = 0;
};

absl::StatusOr<std::unique_ptr<Member>> MakeMember(const MemberOptions&) {
  return std::make_unique<MpiMember>();
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  return cohort::benchmark::MemberMain(argc, argv, cohort::benchmark::MakeMember);
}
