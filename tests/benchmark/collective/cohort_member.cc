// A rank of Cohort: it takes its seat at a coordinator, and executes collectives itself. A way
// "tcp" is with ranks that share no memory.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/heap.h"
#include "base/status_macros.h"
#include "client/rendezvous/process_group.h"
#include "tests/benchmark/collective/buffers.h"
#include "tests/benchmark/collective/member.h"
#include "tests/benchmark/collective/member_main.h"
#include "worker/group/group_bootstrap.h"

namespace cohort::benchmark {
namespace {

// Longer than the driver waits.
constexpr absl::Duration kTimeout = absl::Minutes(5);

class CohortWork final : public Prepared {
 public:
  CohortWork(worker::Communicator& group, const Work& work, std::shared_ptr<shm::Heap> heap)
      : group_(group), work_(work), heap_(std::move(heap)) {}
  ~CohortWork() override {
    if (work_.memory != Memory::kRegistered) return;
    heap_->Free(input_);
    heap_->Free(output_);
  }

  absl::Status Allocate() {
    const Extents extents = ExtentsOf(work_, group_.rank(), group_.size());
    if (work_.memory == Memory::kPlain) {
      COHORT_ASSIGN_OR_RETURN(buffers_, Buffers::Allocate(work_, group_.rank(), group_.size()));
      input_ = buffers_.input->data();
      output_ = buffers_.output->data();
      return absl::OkStatus();
    }
    for (const auto& [tensor, elements] :
         {std::make_pair(&input_, extents.input), std::make_pair(&output_, extents.output)}) {
      const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
      COHORT_ASSIGN_OR_RETURN(void* const memory, heap_->Allocate(bytes));
      *tensor = static_cast<float*>(memory);
      std::fill_n(*tensor, elements, 0.0f);
    }
    return absl::OkStatus();
  }

  float* input() override { return input_; }
  float* output() override { return output_; }

  absl::Status Run(int64_t iterations) override {
    const Instant deadline = Clock::Steady().Now() + kTimeout;
    for (int64_t i = 0; i < iterations; ++i) COHORT_RETURN_IF_ERROR(Once(deadline));
    return absl::OkStatus();
  }

 private:
  absl::Status Once(Instant deadline) {
    constexpr DataType kType = DataType::kF32;
    const Reduction sum = {ReduceOp::kSum};
    const Extents extents = ExtentsOf(work_, group_.rank(), group_.size());
    const int64_t block = BlockElements(work_, group_.size());
    switch (work_.collective) {
      case Collective::kAllReduce:
        return group_.AllReduce(input_, output_, extents.input, kType, sum, deadline);
      case Collective::kAllGather:
        return group_.AllGather(input_, output_, extents.input, kType, deadline);
      case Collective::kReduceScatter:
        return group_.ReduceScatter(input_, output_, block, kType, sum, deadline);
      case Collective::kBroadcast: {
        float* const memory = group_.rank() == 0 ? input_ : output_;
        const int64_t count = group_.rank() == 0 ? extents.input : extents.output;
        return group_.Broadcast(memory, memory, count, kType, 0, deadline);
      }
      case Collective::kAllToAll:
        return group_.AllToAll(input_, output_, block, kType, deadline);
      case Collective::kSendReceive: {
        const int size = group_.size();
        const worker::Transfer transfers[] = {
            worker::Transfer::Send((group_.rank() + 1) % size, input_, extents.input, kType),
            worker::Transfer::Receive((group_.rank() + size - 1) % size, output_, extents.output,
                                      kType)};
        return group_.Exchange(transfers, deadline);
      }
    }
    return absl::UnimplementedError("no such operation");
  }

  worker::Communicator& group_;
  const Work work_;
  const std::shared_ptr<shm::Heap> heap_;
  Buffers buffers_;
  float* input_ = nullptr;
  float* output_ = nullptr;
};

class CohortMember final : public Member {
 public:
  static absl::StatusOr<std::unique_ptr<Member>> Make(const MemberOptions& options, bool tcp) {
    auto member = std::make_unique<CohortMember>();
    client::ProcessGroupOptions seat;
    seat.connection.address = absl::StrCat("unix:", options.folder, "/coordinator");
    seat.group = "benchmark";
    seat.rank = options.rank;
    seat.world_size = options.members;
    COHORT_ASSIGN_OR_RETURN(member->membership_, client::ProcessGroup::Create(seat));
    COHORT_ASSIGN_OR_RETURN(member->heap_,
                            shm::Heap::Create("cohort-heap", shm::Heap::DefaultCapacity()));
    worker::BootstrapOptions bootstrap;
    bootstrap.heap = member->heap_;
    if (tcp) bootstrap.host_identity = absl::StrCat("host-", options.rank);
    COHORT_ASSIGN_OR_RETURN(
        member->formed_,
        worker::FormCommunicator(*member->membership_, seat.connection.address, bootstrap));
    return member;
  }

  int rank() const override { return formed_.communicator->rank(); }

  absl::Status Barrier() override {
    return formed_.communicator->Barrier(Clock::Steady().Now() + kTimeout);
  }

  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) override {
    auto prepared = std::make_unique<CohortWork>(*formed_.communicator, work, heap_);
    COHORT_RETURN_IF_ERROR(prepared->Allocate());
    return prepared;
  }

 private:
  std::unique_ptr<client::ProcessGroup> membership_;
  std::shared_ptr<shm::Heap> heap_;
  worker::FormedCommunicator formed_;
};

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  // By the name under which it is started.
  const bool tcp = absl::string_view(argv[0]).find("tcp") != absl::string_view::npos;
  return MemberMain(argc, argv, [tcp](const MemberOptions& options) {
    return CohortMember::Make(options, tcp);
  });
}
