// A rank of Cohort, in one of the forms of client::Group. The program's name says which: "attached"
// and "daemon" are with a worker for each rank, "tcp" is with ranks that share no memory.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/group.h"
#include "client/collective/remote/remote_group.h"
#include "tests/benchmark/collective/members/harness/member.h"
#include "tests/benchmark/collective/members/harness/member_main.h"
#include "worker/group/attached_group.h"
#include "worker/group/local_group.h"

namespace cohort::benchmark {
namespace {

// Longer than the driver waits.
const client::CallOptions kCall = {absl::Minutes(5)};

class CohortWork final : public Prepared {
 public:
  CohortWork(client::Group& group, const Work& work) : group_(group), work_(work) {}

  absl::Status Allocate() {
    const Extents extents = ExtentsOf(work_, group_.rank(), group_.size());
    COHORT_ASSIGN_OR_RETURN(input_, NewTensor(extents.input));
    COHORT_ASSIGN_OR_RETURN(output_, NewTensor(extents.output));
    return absl::OkStatus();
  }

  float* input() override { return static_cast<float*>(input_.data()); }
  float* output() override { return static_cast<float*>(output_.data()); }

  absl::Status Run(int64_t iterations) override {
    for (int64_t i = 0; i < iterations; ++i) COHORT_RETURN_IF_ERROR(Once());
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Tensor> NewTensor(int64_t elements) {
    if (work_.memory == Memory::kPlain) return Tensor::Zeros(DataType::kF32, {elements});
    COHORT_ASSIGN_OR_RETURN(Tensor tensor, group_.Allocate(DataType::kF32, {elements}));
    std::fill_n(static_cast<float*>(tensor.data()), elements, 0.0f);
    return tensor;
  }

  absl::Status Once() {
    const Reduction sum = {ReduceOp::kSum};
    switch (work_.collective) {
      case Collective::kAllReduce:
        return group_.AllReduce(input_, output_, sum, kCall);
      case Collective::kAllGather:
        return group_.AllGather(input_, output_, 0, kCall);
      case Collective::kReduceScatter:
        return group_.ReduceScatter(input_, output_, 0, sum, kCall);
      case Collective::kBroadcast:
        return group_.Broadcast(group_.rank() == 0 ? input_ : output_, 0, kCall);
      case Collective::kAllToAll:
        return group_.AllToAll(input_, output_, kCall);
      case Collective::kExchange: {
        const int size = group_.size();
        const client::TensorTransfer transfers[] = {
            {true, (group_.rank() + 1) % size, input_},
            {false, (group_.rank() + size - 1) % size, output_}};
        return group_.Exchange(transfers, kCall);
      }
      default:
        return absl::UnimplementedError("no such operation");
    }
  }

  client::Group& group_;
  const Work work_;
  Tensor input_;
  Tensor output_;
};

using MadeGroup = absl::StatusOr<std::unique_ptr<client::Group>>;

MadeGroup MakeLocal(const MemberOptions& options, bool tcp) {
  worker::LocalGroupOptions local;
  local.membership.connection.address = absl::StrCat("unix:", options.folder, "/coordinator");
  local.membership.group = "benchmark";
  local.membership.rank = options.rank;
  local.membership.world_size = options.members;
  if (tcp) local.bootstrap.host_identity = absl::StrCat("host-", options.rank);
  local.bootstrap.advertised_host = options.address;
  return worker::LocalGroup::Create(std::move(local));
}

// The options of a rank at the worker that was started for it.
client::RemoteGroupOptions OptionsAtWorker(const MemberOptions& options) {
  client::RemoteGroupOptions rank_options;
  rank_options.worker.address = absl::StrCat("unix:", options.folder, "/worker-", options.rank);
  rank_options.worker.connect_timeout = absl::Seconds(30);
  rank_options.group = "benchmark";
  rank_options.rank = options.rank;
  rank_options.world_size = options.members;
  return rank_options;
}

MadeGroup MakeGroup(const MemberOptions& options, absl::string_view program) {
  if (absl::StrContains(program, "attached")) {
    return worker::AttachedGroup::Create(OptionsAtWorker(options));
  }
  if (absl::StrContains(program, "daemon")) {
    return client::RemoteGroup::Create(OptionsAtWorker(options));
  }
  return MakeLocal(options, absl::StrContains(program, "tcp"));
}

class CohortMember final : public Member {
 public:
  explicit CohortMember(std::unique_ptr<client::Group> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }

  absl::Status Barrier() override { return group_->Barrier(kCall); }

  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) override {
    auto prepared = std::make_unique<CohortWork>(*group_, work);
    COHORT_RETURN_IF_ERROR(prepared->Allocate());
    return prepared;
  }

 private:
  const std::unique_ptr<client::Group> group_;
};

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  std::string program = argv[0];
  program = program.substr(program.rfind('/') + 1);
  return MemberMain(
      argc, argv,
      [program](const MemberOptions& options) -> absl::StatusOr<std::unique_ptr<Member>> {
        COHORT_ASSIGN_OR_RETURN(std::unique_ptr<cohort::client::Group> group,
                                MakeGroup(options, program));
        return std::make_unique<CohortMember>(std::move(group));
      });
}
